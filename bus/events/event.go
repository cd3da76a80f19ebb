package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

// Event is an event as the stream keeps it: a CloudEvent 1.0 in binary mode, on the subject
// leaf.events.<severity>.<kind>.<what>.<key>. Its JSON is the structured form of the same
// CloudEvent.
type Event struct {
	SpecVersion string          `json:"specversion"` // 1.0
	ID          string          `json:"id"`
	Source      string          `json:"source"`  // /leaf/<node>
	Type        string          `json:"type"`    // leaf.<kind>.<what>
	Key         string          `json:"subject"` // a tag, worker or node
	Time        time.Time       `json:"time"`
	ContentType string          `json:"datacontenttype"`
	Severity    string          `json:"severity"` // info or alert
	Data        json.RawMessage `json:"data"`

	// Body is Data as one of the bodies: a [Refill] or the like, not a pointer to it. It is nil if
	// this version does not know the event, because the generator is newer.
	Body any `json:"-"`
}

// types are the events that generators publish, by kind and what: their severity, and their body.
var types = map[string]struct {
	severity string
	read     func([]byte) (any, error)
}{
	"segment.refill":        {wire.Info, bodyAs[Refill]},
	"segment.refill_failed": {wire.Alert, bodyAs[RefillFailed]},
	"segment.starved":       {wire.Alert, bodyAs[Starved]},
	"segment.regressed":     {wire.Alert, bodyAs[Regressed]},
	"segment.ending":        {wire.Alert, bodyAs[Ending]},
	"segment.recovered":     {wire.Info, bodyAs[Recovered]},
	"records.unavailable":   {wire.Alert, bodyAs[Unavailable]},
	"records.recovered":     {wire.Info, bodyAs[Recovered]},
	"registry.unavailable":  {wire.Alert, bodyAs[Unavailable]},
	"registry.recovered":    {wire.Info, bodyAs[Recovered]},
	"nats.degraded":         {wire.Alert, bodyAs[NATSDegraded]},
	"nats.recovered":        {wire.Info, bodyAs[Recovered]},
	"clock.backwards":       {wire.Alert, bodyAs[ClockBackwards]},
	"clock.skewed":          {wire.Alert, bodyAs[ClockSkewed]},
	"clock.recovered":       {wire.Info, bodyAs[Recovered]},
	"worker.acquired":       {wire.Info, bodyAs[Worker]},
	"worker.released":       {wire.Info, bodyAs[Worker]},
	"worker.lost":           {wire.Alert, bodyAs[Worker]},
	"worker.expiring":       {wire.Alert, bodyAs[Worker]},
	"worker.ending":         {wire.Alert, bodyAs[WorkerEnding]},
	"worker.recovered":      {wire.Info, bodyAs[Recovered]},
	"tag.shadowed":          {wire.Alert, bodyAs[TagProblem]},
	"tag.damaged":           {wire.Alert, bodyAs[TagProblem]},
	"tag.recovered":         {wire.Info, bodyAs[Recovered]},
	"tag.created":           {wire.Info, bodyAs[Tag]},
	"tag.updated":           {wire.Info, bodyAs[Tag]},
	"tag.deleted":           {wire.Info, bodyAs[Tag]},
	"node.started":          {wire.Info, bodyAs[Node]},
	"node.stopped":          {wire.Info, bodyAs[Node]},
	"node.stale":            {wire.Alert, bodyAs[Stale]},
	"node.lost":             {wire.Alert, bodyAs[Lost]},
	"node.recovered":        {wire.Info, bodyAs[Recovered]},
}

// Types are the types of the events that generators publish, as leaf.segment.refill, with their
// severity: info or alert.
func Types() iter.Seq2[string, string] {
	return func(yield func(what, severity string) bool) {
		for what, t := range types {
			if !yield("leaf."+what, t.severity) {
				return
			}
		}
	}
}

// ErrNotAnEvent is matched by the error about a message on a subject of events that cannot be read
// as an event.
var ErrNotAnEvent = errors.New("not an event")

// Parse reads an event from the subject, header and body of its message. Its errors match
// [ErrNotAnEvent].
func Parse(subject string, header nats.Header, data []byte) (Event, error) {
	bad := func(why string, a ...any) (Event, error) {
		err := fmt.Errorf(why, a...)
		return Event{}, fmt.Errorf("the message on %s is %w: %w", strconv.QuoteToASCII(subject), ErrNotAnEvent, err)
	}
	rest, ok := strings.CutPrefix(subject, wire.SubjectEvents+".")
	tokens := strings.SplitN(rest, ".", 4)
	if !ok || len(tokens) != 4 {
		return bad("events are on %s.<severity>.<kind>.<what>.<key>", wire.SubjectEvents)
	}
	if !json.Valid(data) {
		return bad("its body is not JSON: %s", idspace.Quote(data))
	}
	at, err := time.Parse(time.RFC3339Nano, header.Get(wire.HeaderTime))
	if err != nil {
		return bad("it has no time: %w", err)
	}
	var body any
	what := tokens[1] + "." + tokens[2]
	if t, ok := types[what]; ok {
		if body, err = t.read(data); err != nil {
			return bad("its body is not that of %s: %w", what, err)
		}
	}
	return Event{
		SpecVersion: header.Get(wire.HeaderSpec), ID: header.Get(wire.HeaderID), Source: header.Get(wire.HeaderSource),
		Type: header.Get(wire.HeaderType), Key: tokens[3], Time: at, ContentType: header.Get(wire.HeaderContent),
		Severity: tokens[0], Data: data, Body: body,
	}, nil
}

func bodyAs[T any](data []byte) (any, error) {
	var body *T // encoding/json accepts null for a struct
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, err
	}
	if body == nil {
		return nil, errors.New("it is null")
	}
	return *body, nil
}

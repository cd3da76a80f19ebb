package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// Event is an event as the stream keeps it: a CloudEvent 1.0 in binary mode, on the subject
// leaf.events.<severity>.<kind>.<what>.<key>. Its JSON is the structured form of the same CloudEvent.
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

	// Body is Data as one of the types below: a [RefillEvent] or the like, not a pointer to it. It is nil if
	// this version does not know the event, because the generator is newer.
	Body any `json:"-"`
}

// eventTypes are the events that generators publish, by kind and what: their severity, and their body.
var eventTypes = map[string]struct {
	severity string
	read     func([]byte) (any, error)
}{
	"segment.refill":        {wire.Info, bodyAs[RefillEvent]},
	"segment.refill_failed": {wire.Alert, bodyAs[RefillFailedEvent]},
	"segment.starved":       {wire.Alert, bodyAs[StarvedEvent]},
	"segment.regressed":     {wire.Alert, bodyAs[RegressedEvent]},
	"segment.ending":        {wire.Alert, bodyAs[EndingEvent]},
	"segment.recovered":     {wire.Info, bodyAs[RecoveredEvent]},
	"records.unavailable":   {wire.Alert, bodyAs[RecordsUnavailableEvent]},
	"records.recovered":     {wire.Info, bodyAs[RecoveredEvent]},
	"nats.degraded":         {wire.Alert, bodyAs[NATSDegradedEvent]},
	"nats.recovered":        {wire.Info, bodyAs[RecoveredEvent]},
	"clock.backwards":       {wire.Alert, bodyAs[ClockBackwardsEvent]},
	"clock.skewed":          {wire.Alert, bodyAs[ClockSkewedEvent]},
	"clock.recovered":       {wire.Info, bodyAs[RecoveredEvent]},
	"worker.acquired":       {wire.Info, bodyAs[WorkerEvent]},
	"worker.released":       {wire.Info, bodyAs[WorkerEvent]},
	"worker.lost":           {wire.Alert, bodyAs[WorkerEvent]},
	"worker.expiring":       {wire.Alert, bodyAs[WorkerEvent]},
	"worker.ending":         {wire.Alert, bodyAs[WorkerEndingEvent]},
	"worker.recovered":      {wire.Info, bodyAs[RecoveredEvent]},
	"tag.shadowed":          {wire.Alert, bodyAs[TagProblemEvent]},
	"tag.damaged":           {wire.Alert, bodyAs[TagProblemEvent]},
	"tag.recovered":         {wire.Info, bodyAs[RecoveredEvent]},
	"tag.created":           {wire.Info, bodyAs[TagEvent]},
	"tag.updated":           {wire.Info, bodyAs[TagEvent]},
	"tag.deleted":           {wire.Info, bodyAs[TagEvent]},
	"node.started":          {wire.Info, bodyAs[NodeEvent]},
	"node.stopped":          {wire.Info, bodyAs[NodeEvent]},
	"node.stale":            {wire.Alert, bodyAs[StaleEvent]},
	"node.lost":             {wire.Alert, bodyAs[LostEvent]},
	"node.recovered":        {wire.Info, bodyAs[RecoveredEvent]},
}

// EventTypes are the types of the events that generators publish, as leaf.segment.refill, with their
// severity: info or alert.
func EventTypes() iter.Seq2[string, string] {
	return func(yield func(what, severity string) bool) {
		for what, t := range eventTypes {
			if !yield("leaf."+what, t.severity) {
				return
			}
		}
	}
}

// The bodies of events. Node is the generator that published the event, except in [LostEvent] and its end. Fields that end in MS are
// milliseconds: durations, or Unix times by the generator's clock. A newer generator may publish
// more fields than these types have: [Event.Data] has all of them.
type (
	// RefillEvent is the body of leaf.segment.refill: a range was reserved.
	RefillEvent struct {
		Node      string          `json:"node"`
		Tag       string          `json:"tag"`
		First     int64           `json:"first,string"` // of the range's IDs
		Last      int64           `json:"last,string"`
		Step      int64           `json:"step"` // as it is adapted to the demand
		Cause     allocator.Cause `json:"cause"`
		ElapsedMS float64         `json:"elapsed_ms"` // of the store's write
	}
	// RefillFailedEvent is the body of the alert leaf.segment.refill_failed: the store refused a
	// range, or did not answer. The generator retries.
	RefillFailedEvent struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		Error string `json:"error"`
		Left  int64  `json:"left"` // IDs still in memory
	}
	// StarvedEvent is the body of the alert leaf.segment.starved: requests are refused because
	// memory is empty, and no other generator has the IDs.
	StarvedEvent struct {
		Node    string `json:"node"`
		Tag     string `json:"tag"`
		Waiting int    `json:"waiting"` // requests, the first refused one included
	}
	// TagProblemEvent is the body of the alerts leaf.tag.shadowed (the database has a row with the name of a strict or opaque
	// tag, which is not served) and leaf.tag.damaged (the tag's record cannot be read, or is of a newer version).
	TagProblemEvent struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		Error string `json:"error"`
	}
	// EndingEvent is the body of the alert leaf.segment.ending: 80 % of the tag's IDs are reserved.
	EndingEvent struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		Left  int64  `json:"left"`         // IDs that are not reserved
		Limit int64  `json:"limit,string"` // the largest ID of the tag
	}
	// RegressedEvent is the body of the alert leaf.segment.regressed: the store went backwards.
	RegressedEvent struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		Store string `json:"store"`       // kv or mysql
		Got   int64  `json:"got,string"`  // where the store's max_id was, or another generator's range began
		Seen  int64  `json:"seen,string"` // all IDs below are in use
		// Action is advanced if the store was raised above Seen, and service goes on. It is dropped if two generators held one
		// range: then an operator must look, because the IDs from First to Last may come twice.
		Action allocator.Action `json:"action"`
		First  int64            `json:"first,string,omitempty"`
		Last   int64            `json:"last,string,omitempty"`
	}
	// RecordsUnavailableEvent is the body of the alert leaf.records.unavailable: no range can be claimed. IDs
	// come from memory alone.
	RecordsUnavailableEvent struct {
		Node    string `json:"node"`
		Error   string `json:"error"`
		SinceMS int64  `json:"since_ms"` // Unix time
	}
	// NATSDegradedEvent is the body of the alert leaf.nats.degraded: the NATS server in the generator's process does not
	// keep its part of the installation's state, or all generators use one server of a cluster.
	NATSDegradedEvent struct {
		Node  string `json:"node"`
		Cause string `json:"cause"`
	}
	// RecoveredEvent is the body of leaf.segment.recovered, leaf.tag.recovered, leaf.records.recovered, leaf.nats.recovered,
	// leaf.clock.recovered, leaf.worker.recovered and leaf.node.recovered: an alert is over. If leaf.node.recovered has [EpisodeLost], Node is
	// the generator that was lost.
	RecoveredEvent struct {
		Node   string `json:"node"`
		Tag    string `json:"tag,omitempty"`    // only in leaf.segment.recovered
		Worker *int64 `json:"worker,omitempty"` // only in leaf.clock.recovered and leaf.worker.recovered; 0 is a worker
		// Episode is the last word of the alert's type: starved for leaf.segment.starved.
		Episode string `json:"episode"`
	}
	// ClockBackwardsEvent is the body of the alert leaf.clock.backwards: the clock is behind the
	// last snowflake.
	ClockBackwardsEvent struct {
		Node     string           `json:"node"`
		Worker   int64            `json:"worker"`
		OffsetMS int64            `json:"offset_ms"` // how far it is behind
		LastMS   int64            `json:"last_ms"`   // time of the last snowflake
		NowMS    int64            `json:"now_ms"`
		Action   snowflake.Action `json:"action"`
	}
	// ClockSkewedEvent is the body of the alert leaf.clock.skewed: the clock stepped forward, and
	// other generators disagree or there are none; or it is wrong at a start. One of RecordedMS and
	// PeersMS is 0.
	ClockSkewedEvent struct {
		Node        string `json:"node"`
		NowMS       int64  `json:"now_ms"`
		RecordedMS  int64  `json:"recorded_ms,omitempty"` // by this generator's last run, or the monotonic clock
		PeersMS     int64  `json:"peers_ms,omitempty"`    // the median of the other generators' clocks
		ThresholdMS int64  `json:"threshold_ms"`          // a duration
	}
	// WorkerEvent is the body of leaf.worker.acquired and leaf.worker.released, and of the alerts
	// leaf.worker.lost and leaf.worker.expiring. [Event.Type] says which.
	WorkerEvent struct {
		Node     string `json:"node"`
		Worker   int64  `json:"worker"`
		Registry string `json:"registry"` // kv or zookeeper
		// FromMS and AfterMS are only in leaf.worker.acquired. The holder issues no ID with a time before FromMS; 0: nobody
		// held the worker before. AfterMS is the last report in the record that the holder replaced, of itself or of an earlier
		// holder; 0: there was none. Older versions send neither.
		FromMS  int64 `json:"from_ms,omitempty"`
		AfterMS int64 `json:"after_ms,omitempty"`
		// UntilMS is only in leaf.worker.lost: all IDs that Node issued have earlier times. Older versions do not send it.
		UntilMS         int64 `json:"until_ms,omitempty"`
		ReservedUntilMS int64 `json:"reserved_until_ms"`
		// Holder is only in leaf.worker.released, and only if Node released the worker of another generator for an
		// operator: that generator. Older versions do not send it.
		Holder string `json:"holder,omitempty"`
	}
	// WorkerEndingEvent is the body of the alert leaf.worker.ending: the layout has less than a
	// year left.
	WorkerEndingEvent struct {
		Node   string `json:"node"`
		Worker int64  `json:"worker"`
		EndMS  int64  `json:"end_ms"` // from then on there are no snowflakes
	}
	// StaleEvent is the body of the alert leaf.node.stale: the generator was cut off, and the store
	// does not say which max_id operators have set since. The generator serves again.
	StaleEvent struct {
		Node  string `json:"node"`
		Error string `json:"error"`
	}
	// LostEvent is the body of the alert leaf.node.lost: the other generators do not hear Node, and it did not report that
	// it ends. They publish one alert together, and one end of it: when one hears Node again, or at UntilMS.
	LostEvent struct {
		Node        string `json:"node"`          // the lost one; [Event.Source] has the publisher
		Run         string `json:"run"`           // of Node: each start has another
		LastHeardMS int64  `json:"last_heard_ms"` // when its last heartbeat came
		Worker      *int64 `json:"worker,omitempty"`
		UntilMS     int64  `json:"until_ms"` // when the reservation of its worker ends; without a worker an hour after LastHeardMS
	}
	// TagEvent is the body of leaf.tag.created, leaf.tag.updated and leaf.tag.deleted: the tag's
	// new record, or its last one.
	TagEvent struct {
		Node string `json:"node"`
		TagRecord
	}
	// NodeEvent is the body of leaf.node.started and leaf.node.stopped.
	NodeEvent struct {
		Node    string            `json:"node"`
		Version string            `json:"version"` // of the program
		Address string            `json:"address"` // of the NATS server
		Config  map[string]string `json:"config"`  // flags of the program, without secrets
		// Started is when the process started. It may have published other events before this one.
		// It comes from the header Leaf-Started, and is zero where there is none.
		Started time.Time `json:"-"`
	}
)

// EpisodeLost is the Episode of the [RecoveredEvent] that ends the alert leaf.node.lost.
const EpisodeLost = "lost"

// ErrNotAnEvent is matched by the error about a message on a subject of events that cannot be read
// as an event.
var ErrNotAnEvent = errors.New("not an event")

// ParseEvent reads an event from the subject, header and body of its message. Its errors match
// [ErrNotAnEvent].
func ParseEvent(subject string, header nats.Header, data []byte) (Event, error) {
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
		return bad("its body is not JSON: %s", wire.Quote(data))
	}
	at, err := time.Parse(time.RFC3339Nano, header.Get(wire.HeaderTime))
	if err != nil {
		return bad("it has no time: %w", err)
	}
	var body any
	what := tokens[1] + "." + tokens[2]
	if t, ok := eventTypes[what]; ok {
		if body, err = t.read(data); err != nil {
			return bad("its body is not that of %s: %w", what, err)
		}
	}
	if node, ok := body.(NodeEvent); ok {
		node.Started, _ = time.Parse(time.RFC3339Nano, header.Get(wire.HeaderStarted)) // older versions do not send it
		body = node
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

package bus

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
)

// Event is an event as the stream keeps it: a CloudEvent 1.0 in binary mode,
// on the subject leaf.events.<severity>.<kind>.<what>.<key>. Its JSON is the
// structured form of the same CloudEvent.
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

	// Body is Data as one of the types of this package: [RefillEvent],
	// [RefillFailedEvent], [StarvedEvent], [RegressedEvent], [RecoveredEvent],
	// [NATSDegradedEvent], [ClockBackwardsEvent], [ClockSkewedEvent], [WorkerEvent],
	// [WorkerEndingEvent], [StaleEvent], [TagEvent] or [NodeEvent], none of them a pointer. It is
	// nil for an event that this version does not know, a newer generator's.
	Body any `json:"-"`
}

// ErrNotAnEvent is matched by the error about a message that is on a subject of
// events and cannot be read as one.
var ErrNotAnEvent = errors.New("not an event")

const (
	info  = "info"
	alert = "alert"

	jsonType = "application/json"
)

// The headers of CloudEvents' binary mode.
const (
	headerSpec    = "ce-specversion"
	headerID      = "ce-id"
	headerSource  = "ce-source"
	headerType    = "ce-type"
	headerSubject = "ce-subject"
	headerTime    = "ce-time"
	headerContent = "ce-datacontenttype"
)

// headerStarted carries when the process of a node event started.
const headerStarted = "Leaf-Started"

// newEvent returns the message of an event. kind is kind and what, with a dot
// between them, one of eventTypes; body is a struct that names the node.
func newEvent(kind, key, node string, body any) *nats.Msg {
	id := rand.Text()
	msg := nats.NewMsg(subjectEvents + "." + eventTypes[kind].severity + "." + kind + "." + key)
	for name, value := range map[string]string{
		headerSpec:    "1.0",
		headerID:      id,
		nats.MsgIdHdr: id,
		headerSource:  "/leaf/" + node,
		headerType:    "leaf." + kind,
		headerSubject: key,
		headerTime:    time.Now().UTC().Format(time.RFC3339Nano),
		headerContent: jsonType,
	} {
		msg.Header[name] = []string{value}
	}
	msg.Data = encode(body)
	return msg
}

// ParseEvent reads an event from the subject, header and body of its message.
// Its errors match [ErrNotAnEvent].
func ParseEvent(subject string, header nats.Header, data []byte) (Event, error) {
	bad := func(why string, a ...any) (Event, error) {
		return Event{}, fmt.Errorf("the message on %s is %w: %w", strconv.QuoteToASCII(subject), ErrNotAnEvent, fmt.Errorf(why, a...))
	}
	rest, ok := strings.CutPrefix(subject, subjectEvents+".")
	tokens := strings.SplitN(rest, ".", 4)
	if !ok || len(tokens) != 4 {
		return bad("the subject of one is %s.<severity>.<kind>.<what>.<key>", subjectEvents)
	}
	if !json.Valid(data) {
		return bad("it has no JSON: %s", quote(data))
	}
	at, err := time.Parse(time.RFC3339Nano, header.Get(headerTime))
	if err != nil {
		return bad("it has no time: %w", err)
	}
	body, err := parseBody(tokens[1]+"."+tokens[2], data)
	if err != nil {
		return bad("%w", err)
	}
	if node, ok := body.(NodeEvent); ok {
		node.Started, _ = time.Parse(time.RFC3339Nano, header.Get(headerStarted)) // an older version does not tell
		body = node
	}
	return Event{
		SpecVersion: header.Get(headerSpec), ID: header.Get(headerID), Source: header.Get(headerSource),
		Type: header.Get(headerType), Key: tokens[3], Time: at, ContentType: header.Get(headerContent),
		Severity: tokens[0], Data: data, Body: body,
	}, nil
}

// allocatorEvent returns the message of an event of the allocator.
func allocatorEvent(node string, e allocator.Event) *nats.Msg {
	switch e := e.(type) {
	case allocator.Refilled:
		ms := float64(e.Elapsed.Microseconds()) / 1000
		return newEvent("segment.refill", e.Tag, node, RefillEvent{node, e.Tag, e.First, e.Last, e.Step, e.Cause, ms})
	case allocator.RefillFailed:
		return newEvent("segment.refill_failed", e.Tag, node, RefillFailedEvent{node, e.Tag, e.Err.Error(), e.Left})
	case allocator.Starved:
		return newEvent("segment.starved", e.Tag, node, StarvedEvent{node, e.Tag, e.Waiting})
	case allocator.Regressed:
		return newEvent("segment.regressed", e.Tag, node, RegressedEvent{node, e.Tag, e.Got, e.Seen})
	case allocator.Recovered:
		return newEvent("segment.recovered", e.Tag, node, RecoveredEvent{Node: node, Tag: e.Tag, Episode: e.Episode})
	default:
		panic(fmt.Sprintf("bus: unknown event %T", e))
	}
}

// snowflakeEvent returns the message of an event of snowflakes.
func snowflakeEvent(node, registry string, e snowflake.Event) *nats.Msg {
	of := func(kind string, h snowflake.Held) *nats.Msg {
		return newEvent(kind, key(h.Worker), node, WorkerEvent{node, h.Worker, registry, h.ReservedUntil})
	}
	switch e := e.(type) {
	case snowflake.ClockBackwards:
		return newEvent("clock.backwards", key(e.Worker), node, ClockBackwardsEvent{node, e.Worker, e.Offset, e.Last, e.Now, e.Action})
	case snowflake.ClockSkewed:
		body := ClockSkewedEvent{Node: node, NowMS: e.Now, PeersMS: e.Peers, ThresholdMS: e.Threshold.Milliseconds()}
		if e.Peers == 0 {
			body.RecordedMS = cmp.Or(e.Recorded, e.Expected)
		}
		return newEvent("clock.skewed", node, node, body)
	case snowflake.WorkerAcquired:
		return of("worker.acquired", e.Held)
	case snowflake.WorkerReleased:
		return of("worker.released", e.Held)
	case snowflake.WorkerLost:
		return of("worker.lost", e.Held)
	case snowflake.WorkerExpiring:
		return of("worker.expiring", e.Held)
	case snowflake.Ending:
		return newEvent("worker.ending", key(e.Worker), node, WorkerEndingEvent{node, e.Worker, e.End})
	case snowflake.Recovered:
		kind, about := "worker.recovered", key(e.Worker)
		switch e.Episode {
		case snowflake.EpisodeBackwards:
			kind = "clock.recovered"
		case snowflake.EpisodeSkewed:
			kind, about = "clock.recovered", node
		}
		return newEvent(kind, about, node, RecoveredEvent{Node: node, Worker: &e.Worker, Episode: e.Episode})
	default:
		panic(fmt.Sprintf("bus: unknown event %T", e))
	}
}

// key is a worker's number as the last token of an event's subject.
func key(worker int64) string { return strconv.FormatInt(worker, 10) }

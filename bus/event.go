package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go"
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

// ParseEvent reads an event from the subject, header and body of its message.
// Its errors match [ErrNotAnEvent].
func ParseEvent(subject string, header nats.Header, data []byte) (Event, error) {
	bad := func(why string, a ...any) (Event, error) {
		return Event{}, fmt.Errorf("the message on %s is %w: %w", strconv.QuoteToASCII(subject), ErrNotAnEvent, fmt.Errorf(why, a...))
	}
	rest, ok := strings.CutPrefix(subject, wire.SubjectEvents+".")
	tokens := strings.SplitN(rest, ".", 4)
	if !ok || len(tokens) != 4 {
		return bad("the subject of one is %s.<severity>.<kind>.<what>.<key>", wire.SubjectEvents)
	}
	if !json.Valid(data) {
		return bad("it has no JSON: %s", wire.Quote(data))
	}
	at, err := time.Parse(time.RFC3339Nano, header.Get(wire.HeaderTime))
	if err != nil {
		return bad("it has no time: %w", err)
	}
	body, err := parseBody(tokens[1]+"."+tokens[2], data)
	if err != nil {
		return bad("%w", err)
	}
	if node, ok := body.(NodeEvent); ok {
		node.Started, _ = time.Parse(time.RFC3339Nano, header.Get(wire.HeaderStarted)) // an older version does not tell
		body = node
	}
	return Event{
		SpecVersion: header.Get(wire.HeaderSpec), ID: header.Get(wire.HeaderID), Source: header.Get(wire.HeaderSource),
		Type: header.Get(wire.HeaderType), Key: tokens[3], Time: at, ContentType: header.Get(wire.HeaderContent),
		Severity: tokens[0], Data: data, Body: body,
	}, nil
}

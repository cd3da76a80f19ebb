package outbox

import (
	"crypto/rand"
	"maps"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/wire"
)

// severities has the severity of each type of events.
var severities = maps.Collect(events.Types())

// NewEvent returns the message of an event, with a random ID. "leaf." and kind are one of
// [events.Types], for example kind segment.refill. The body is a struct that names the node.
func NewEvent(kind, key, node string, body any) *nats.Msg {
	return NewEventWithID(rand.Text(), kind, key, node, body)
}

// NewEventWithID is NewEvent with an ID that several generators may use for one event. The stream
// then keeps one of the messages.
func NewEventWithID(id, kind, key, node string, body any) *nats.Msg {
	msg := nats.NewMsg(wire.SubjectEvents + "." + severities["leaf."+kind] + "." + kind + "." + key)
	for name, value := range map[string]string{
		wire.HeaderSpec:    "1.0",
		wire.HeaderID:      id,
		nats.MsgIdHdr:      id,
		wire.HeaderSource:  "/leaf/" + node,
		wire.HeaderType:    "leaf." + kind,
		wire.HeaderSubject: key,
		wire.HeaderTime:    time.Now().UTC().Format(time.RFC3339Nano),
		wire.HeaderContent: wire.JSONType,
	} {
		msg.Header[name] = []string{value}
	}
	msg.Data = wire.Encode(body)
	return msg
}

// IsAlert reports whether events of a kind are alerts.
func IsAlert(kind string) bool { return severities["leaf."+kind] == wire.Alert }

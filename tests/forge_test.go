package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// refillEvent is the message of a refill event.
func refillEvent(tag, node string, first, last int64) *nats.Msg {
	msg := nats.NewMsg("leaf.events.info.segment.refill." + tag)
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": nats.NewInbox(), "ce-source": "/leaf/" + node, "ce-type": "leaf.segment.refill", "ce-subject": tag,
		"ce-time": time.Now().UTC().Format(time.RFC3339Nano), "ce-datacontenttype": "application/json",
	} {
		msg.Header.Set(name, value)
	}
	msg.Data = fmt.Appendf(nil, `{"node":%q,"tag":%q,"first":"%d","last":"%d","step":10,"cause":"demand","elapsed_ms":0.1}`, node, tag, first, last)
	return msg
}

// forgeRefill publishes a refill event that no generator has published.
func forgeRefill(t *testing.T, js jetstream.JetStream, tag, node string, first, last int64) {
	t.Helper()
	_, err := js.PublishMsg(t.Context(), refillEvent(tag, node, first, last))
	must(t, err)
}

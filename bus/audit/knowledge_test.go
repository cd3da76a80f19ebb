package audit_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
)

// The refill events of each tag show how far the tag was reserved.
func TestRefills(t *testing.T) {
	t.Parallel()
	nc := natskit.Connect(t, natskit.Start(t))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	want := func(tag string, want map[string]int64) {
		t.Helper()
		got := make(map[string]int64)
		err := audit.Refills(t.Context(), js, tag, func(tag, _ string, r bus.Range) { got[tag] = r.Last + 1 })
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("of %q: %v, %v; want %v", tag, got, err, want)
		}
	}
	none := map[string]int64{}
	want("", none) // there is no stream
	want("order", none)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: events.Stream, Subjects: []string{events.Subjects}}); err != nil {
		t.Fatal(err)
	}
	want("", none)
	want("order", none)
	publish := func(key, body string) {
		t.Helper()
		msg := nats.NewMsg("leaf.events.info.segment.refill." + key)
		msg.Data = []byte(body)
		msg.Header.Set("ce-time", time.Now().Format(time.RFC3339Nano))
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	refill := func(tag string, first, last int64) string {
		return fmt.Sprintf(`{"node":"n","tag":%q,"first":"%d","last":"%d","step":10,"cause":"demand","elapsed_ms":1}`, tag, first, last)
	}
	publish("order", refill("order", 1, 10))
	publish("order", refill("order", 11, 20))
	publish("order.eu", refill("order.eu", 1, 500))
	// What cannot be a refill event shows nothing.
	publish("junk", "{")
	publish("other", refill("order", 1, 9000))
	publish("overflow", `{"tag":"overflow","first":"1","last":"99999999999999999999"}`)
	want("", map[string]int64{"order": 21, "order.eu": 501})
	want("order", map[string]int64{"order": 21})
	want("order.eu", map[string]int64{"order.eu": 501})
	want("unknown", none)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := audit.Refills(ctx, js, "", func(string, string, bus.Range) {}); err == nil {
		t.Error("a reading that was ended counts as complete")
	}
}

package gateway

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/bustest"
	"github.com/leafbus/leafbus/internal/testkit"
)

// What ended alerts before the feed began is in the stream, too.
func TestFeedKnowsStartsFromBefore(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	js, err := jetstream.New(g.Conn())
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the stream is there", func() bool {
		_, err := js.Stream(t.Context(), bus.EventStream)
		return err == nil
	})
	for i, told := range []struct{ subject, body string }{
		{"leaf.events.alert.segment.starved.a", `{"node":"n","tag":"a","waiting":1}`},
		{"leaf.events.alert.clock.skewed.n", `{"node":"n","now_ms":1,"peers_ms":2,"threshold_ms":1}`},
		{"leaf.events.info.worker.acquired.7", `{"node":"n","worker":7,"registry":"kv","reserved_until_ms":1}`},
		{"leaf.events.info.node.started.n", `{"node":"n","version":"1","address":"nats://here","config":{}}`},
		{"leaf.events.alert.segment.starved.b", `{"node":"n","tag":"b","waiting":1}`},
	} {
		if _, err := js.PublishMsg(t.Context(), alertMessage(told.subject, string(rune('1'+i)), time.Duration(-i)*time.Minute, told.body)); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, &fakeGenerator{}, func(c *Config) { c.Client, c.Listener = g.Client(), listen(t) })
	run(t, s)
	testkit.Eventually(t, "the last is known, and what is over", func() bool {
		v := s.views.feed.view(nil)
		return len(v.Alerts) == 3 && v.Lasting == 1 && v.Alerts[0].Key == "b"
	})
}

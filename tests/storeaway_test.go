package tests

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// While the store cannot be written, requests that need it wait as long as
// they may and are then refused; it is told once; all is well again afterwards.
func TestStoreFailsAndComesBack(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:100", "--max-step", "100", "--max-wait", "2s")
	nc := connect(t, g.url)
	js := jetStream(t, nc)
	c := bus.NewClient(nc)
	taken := takeOne(t, c, "order")

	breakStore(t, js, true)
	testkit.Eventually(t, "a refusal", func() bool {
		msg := ask(t, nc, "leaf.segment.order", "10")
		if len(msg.Header) == 0 {
			return false
		}
		e := refusal(t, msg)
		if e.Code == 504 { // the first may still have waited for the write itself
			return false
		}
		if e.Code != 503 || e.Reason != "store_unavailable" {
			t.Fatalf("refused with %+v", e)
		}
		return true
	})
	for { // what is left in memory is still handed out
		msg := ask(t, nc, "leaf.segment.order", "")
		if len(msg.Header) > 0 {
			refused(t, msg, 503, bus.StoreUnavailable)
			break
		}
	}
	for range 20 {
		refused(t, ask(t, nc, "leaf.segment.order", "10"), 503, bus.StoreUnavailable)
	}
	failed := eventsOn[struct {
		Node, Tag, Error string
		Left             int64
	}](t, js, "leaf.events.alert.segment.refill_failed.order", 1)
	if e := failed[0]; e.Node != g.node || e.Tag != "order" || e.Error == "" {
		t.Errorf("alert %+v", e)
	}
	starved := eventsOn[struct {
		Node, Tag string
		Waiting   int
	}](t, js, "leaf.events.alert.segment.starved.order", 1)
	if e := starved[0]; e.Node != g.node || e.Tag != "order" || e.Waiting < 1 {
		t.Errorf("alert %+v", e)
	}
	if s := states(t, c, 1)[0]; s.Ready {
		t.Errorf("it says that it is ready: %+v", s)
	}

	breakStore(t, js, false)
	if id := takeOne(t, c, "order"); id <= taken {
		t.Errorf("ID %d came after %d", id, taken)
	}
	over := make(map[string]int)
	for _, e := range eventsOn[struct{ Node, Tag, Episode string }](t, js, "leaf.events.info.segment.recovered.order", 2) {
		over[e.Episode]++
	}
	if over["refill_failed"] != 1 || over["starved"] != 1 {
		t.Errorf("recovered from %v, want refill_failed and starved, once each", over)
	}
	if s := states(t, c, 1)[0]; !s.Ready {
		t.Errorf("it says that it is not ready: %+v", s)
	}
	g.stop()

	// One alert an episode, not one a request: the stream has no second one.
	g = g.again(t)
	for _, subject := range []string{"leaf.events.alert.segment.refill_failed.order", "leaf.events.alert.segment.starved.order"} {
		stream, err := jetStream(t, connect(t, g.url)).Stream(t.Context(), bus.EventStream)
		if err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(subject))
		if err != nil {
			t.Fatal(err)
		}
		if n := info.State.Subjects[subject]; n != 1 {
			t.Errorf("%d events on %s, want 1", n, subject)
		}
	}
}

// breakStore makes the server refuse every write to the tags, or no longer.
func breakStore(t *testing.T, js jetstream.JetStream, broken bool) {
	t.Helper()
	breakBucket(t, js, bus.BucketTags, broken)
}

func breakBucket(t *testing.T, js jetstream.JetStream, bucket string, broken bool) {
	t.Helper()
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgSize = -1
	if broken {
		cfg.MaxMsgSize = 1
	}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

package generator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

func TestStepsAsideAndComesBack(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	shared := memory(t, "order")
	sickStore := &switched{Records: shared}
	start(t, s, "sick", sickStore, func(c *generator.Config) { c.MaxWait = time.Second })
	stream := eventsOn(t, nc)
	// Alone, it stays and says why.
	if _, code := ask(t, nc, "leaf.segment.order", "10"); code != "" {
		t.Fatalf("code %s", code)
	}
	sickStore.away.Store(true)
	testkit.Eventually(t, "it has nothing left", func() bool {
		_, code := ask(t, nc, "leaf.segment.order", "")
		return code != ""
	})
	testkit.Eventually(t, "it answers at once why", func() bool {
		body, code := ask(t, nc, "leaf.segment.order", "")
		return code == "503" && strings.Contains(body, `"reason":"store_unavailable"`)
	})
	testkit.Eventually(t, "it says that it is not ready", func() bool {
		states, err := admin.NewClient(nc).States(t.Context())
		return err == nil && len(states) == 1 && !states[0].Ready && states[0].Missing[0] == "store"
	})

	// With another that can serve, it leaves.
	other := start(t, s, "other", shared, nil)
	testkit.Eventually(t, "only the healthy one answers", func() bool {
		for range 20 {
			if _, code := ask(t, nc, "leaf.segment.order", ""); code != "" {
				return false
			}
		}
		return true
	})
	// Without it, the sick one comes back: an answer with the reason is better than none. At each
	// moment one of the two is in the queue group.
	ctx, end := context.WithCancel(t.Context())
	unanswered := make(chan int)
	go func() {
		count := 0
		for ctx.Err() == nil {
			if _, err := nc.Request("leaf.segment.order", nil, testkit.Patience); errors.Is(err, nats.ErrNoResponders) {
				count++
			}
		}
		unanswered <- count
	}()
	if err := other.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	testkit.Eventually(t, "the sick one answers again", func() bool {
		_, code := ask(t, nc, "leaf.segment.order", "")
		return code == "503"
	})
	end()
	if n := <-unanswered; n > 0 {
		t.Errorf("%d requests found no generator", n)
	}
	// And well, when the store is back, without help.
	sickStore.away.Store(false)
	testkit.Eventually(t, "it recovers", func() bool {
		_, code := ask(t, nc, "leaf.segment.order", "")
		return code == ""
	})

	testkit.Eventually(t, "the ends of both alerts", func() bool { return len(stream("leaf.segment.recovered")) == 2 })
	for _, what := range []string{"leaf.segment.refill_failed", "leaf.segment.starved", "leaf.node.stopped"} {
		if got := len(stream(what)); got != 1 {
			t.Errorf("%d events %s, want one", got, what)
		}
	}
}

// Two that are both sick must not wait for each other.
func TestAllSickStay(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := &switched{Records: memory(t, "order")}
	store.away.Store(true)
	var both []*running
	for _, node := range []string{"a", "b"} {
		quick := func(c *generator.Config) { c.MaxWait = 100 * time.Millisecond }
		both = append(both, start(t, s, node, store, quick))
	}
	testkit.Eventually(t, "both have heard that the other is sick, too", func() bool {
		ask(t, nc, "leaf.segment.order", "")
		return !slices.ContainsFunc(both, func(r *running) bool { return r.Readiness().Segment || !r.Wanted(generator.SegmentKind) })
	})
	for began := time.Now(); time.Since(began) < time.Second; { // one that left would do so after 0.1 s
		if body, code := ask(t, nc, "leaf.segment.order", ""); code != "503" && code != "504" {
			t.Fatalf("code %q: %s", code, body)
		}
	}
}

// A tag that waits must hold up no other, and the drain must answer all.
func TestWaitingLeavesTheCallback(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	tokens := make(chan struct{}, 10)
	g := start(t, s, "n", taking(memory(t, "slow", "quick"), tokens), func(c *generator.Config) { c.MaxWait = testkit.Patience })

	tokens <- struct{}{} // for quick
	if _, code := ask(t, nc, "leaf.segment.quick", "2"); code != "" {
		t.Fatalf("code %s", code)
	}
	const waiting = 100
	inbox := nc.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for range waiting {
		if err := nc.PublishRequest("leaf.segment.slow", inbox, nil); err != nil {
			t.Fatal(err)
		}
	}
	if body, code := ask(t, nc, "leaf.segment.quick", ""); code != "" || body != "3" {
		t.Errorf("with slow requests waiting, quick got %q, code %q", body, code)
	}

	stopped := make(chan error, 1)
	go func() { stopped <- g.stop() }()
	testkit.Eventually(t, "it to refuse new requests", func() bool {
		_, code := ask(t, nc, "leaf.segment.quick", "0") // which takes none: there are few
		return code == "503"
	})
	close(tokens) // the store is quick again
	var c allocatortest.Checker
	for i := range waiting {
		msg, err := replies.NextMsg(testkit.Patience)
		if err != nil {
			t.Fatalf("%d of %d requests were answered: %v", i, waiting, err)
		}
		ranges, err := wire.ParseReply(msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		c.Add(ranges...)
	}
	if ids, err := c.Check(); ids != waiting || err != nil {
		t.Errorf("%d IDs, %v", ids, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestNoReplyNoID(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	start(t, s, "n", memory(t, "order"), nil)
	for range 5 {
		if err := nc.Publish("leaf.segment.order", []byte("3")); err != nil {
			t.Fatal(err)
		}
	}
	if body, _ := ask(t, nc, "leaf.segment.order", ""); body != "1" {
		t.Errorf("after requests without a reply subject, the first ID is %s", body)
	}
}

// The sender of a request chooses the subject of the answer. With that it makes no generator write a record or send a
// request.
func TestAnswersGoToInboxes(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	start(t, s, "n", memory(t, "order"), nil)
	misled, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	own, replies := "leaf.internal.inbox.x", []string{"$KV.LEAF_TAGS.order", "$JS.API.STREAM.PURGE.LEAF_EVENTS", "leaf.admin.tags.delete"}
	for _, subject := range []string{"leaf.segment.order", "leaf.snowflake", "leaf.decode", "leaf.clock", "leaf.admin.tags.list"} {
		for _, reply := range append(replies, own) {
			if err := nc.PublishRequest(subject, reply, []byte("1")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for answers := 0; answers < 5; {
		msg, err := misled.NextMsg(testkit.Patience)
		switch {
		case err != nil:
			t.Fatal(err)
		case slices.Contains(replies, msg.Subject):
			t.Fatalf("a generator sent %s to %s", msg.Data, msg.Subject)
		case msg.Subject == own:
			answers++
		}
	}
}

func TestOverloaded(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	start(t, s, "n", taking(memory(t, "order"), nil), func(c *generator.Config) {
		c.MaxWaiting, c.MaxWait = 2, testkit.Patience
		c.DrainTimeout = time.Millisecond
	})
	for range 2 {
		if err := nc.PublishRequest("leaf.segment.order", nc.NewInbox(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if body, code := ask(t, nc, "leaf.segment.order", ""); code != "429" || !strings.Contains(body, `"reason":"overloaded"`) || !strings.Contains(body, "retry_after_ms") {
		t.Errorf("code %s: %s", code, body)
	}
}

package generator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A tag whose record was removed by hand and that is created again begins above
// what any generator has seen of it, whichever is asked, and none goes on
// with what it held.
func TestCreateAboveWhatOthersSaw(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := memory(t)
	if _, err := store.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 1000}); err != nil {
		t.Fatal(err)
	}
	// Only the first has used the tag, and no event has reported that.
	start(t, s, "first", store, func(c *generator.Config) {
		c.OpenEvents = func(context.Context) error { return errors.New("no events here") }
	})
	var c allocatortest.Checker
	take := func() {
		body, code := ask(t, nc, "leaf.segment.order", "5")
		ranges, err := bus.ParseReply([]byte(body))
		if code != "" || err != nil {
			t.Fatalf("%q, code %q, %v", body, code, err)
		}
		c.Add(ranges...)
	}
	take()
	store.Restore(map[string]allocator.Tag{})
	start(t, s, "second", store, func(c *generator.Config) {
		c.Tags = []allocator.Tag{{Name: "order", MaxID: 1, Step: 10}} // created on the start
	})
	tag, err := bus.NewClient(nc).Tag(t.Context(), "order")
	if err != nil || tag.MaxID < 1001 {
		t.Fatalf("created again: %+v, %v; IDs below 1001 were reserved", tag, err)
	}
	for range 50 {
		take()
	}
	if _, err := c.Check(); err != nil {
		t.Error(err)
	}

	// By an operator, of a tag that only one which knows it by memory has seen.
	store.Restore(map[string]allocator.Tag{})
	again, err := bus.NewClient(nc).CreateTag(t.Context(), bus.TagCreate{Tag: "order"})
	if err != nil || again.MaxID < 1010 {
		t.Errorf("created by an operator: %+v, %v; IDs above 1000 were handed out", again, err)
	}
	for range 50 {
		take()
	}
	if _, err := c.Check(); err != nil {
		t.Error(err)
	}
}

// A generator whose heartbeat comes late is waited for, if it answers that it runs.
func TestCreateWaitsForLateBeat(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	respond := func(subject string, f func(*nats.Msg)) {
		if _, err := nc.Subscribe(subject, f); err != nil {
			t.Fatal(err)
		}
	}
	respond("$SRV.PING.leaf", func(msg *nats.Msg) {
		_ = msg.Respond([]byte(`{"type":"io.nats.micro.v1.ping_response","name":"leaf","id":"x","version":"1.0.0","metadata":{"node":"late"}}`))
		time.AfterFunc(time.Second, func() { _ = nc.Publish("leaf.internal.presence", []byte(`{"node":"late","id":"x"}`)) })
	})
	respond("leaf.internal.tag", func(msg *nats.Msg) { _ = msg.Respond([]byte(`{"id":"x","seen":"5000"}`)) })
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	store := memory(t)
	start(t, s, "n", store, func(c *generator.Config) { c.Tags = []allocator.Tag{{Name: "order", MaxID: 1, Step: 10}} })
	testkit.Eventually(t, "the tag is created above what the late one saw", func() bool {
		tag, err := store.Get(t.Context(), "order")
		if err == nil && tag.MaxID < 5000 {
			t.Fatalf("created: %+v", tag)
		}
		return err == nil
	})
}

// delayed is a store whose answers to Reserve come when the gate is open.
type delayed struct {
	allocator.Store
	gate    chan struct{}
	waiting chan struct{}
}

func (s *delayed) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	g, err := s.Store.Reserve(ctx, tag, n, from)
	if err == nil {
		select {
		case s.waiting <- struct{}{}:
		default:
		}
		<-s.gate
	}
	return g, err
}

// A range that a generator has reserved and not received yet is dropped when
// the tag is created again meanwhile, because its end is not known.
func TestCreateDuringRefill(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := memory(t, "order")
	slow := &delayed{store, make(chan struct{}), make(chan struct{}, 1)}
	start(t, s, "slow", slow, func(c *generator.Config) { c.MaxWait = testkit.Patience })
	answer := make(chan string, 1)
	go func() {
		body, code := ask(t, nc, "leaf.segment.order", "5")
		answer <- code + body
	}()
	<-slow.waiting
	store.Restore(map[string]allocator.Tag{})
	start(t, s, "quick", store, nil)
	if _, err := bus.NewClient(nc).CreateTag(t.Context(), bus.TagCreate{Tag: "order"}); err != nil {
		t.Fatal(err)
	}
	var c allocatortest.Checker
	take := func(body string) {
		ranges, err := bus.ParseReply([]byte(body))
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		c.Add(ranges...)
	}
	reserved, err := store.Reserve(t.Context(), "order", 10) // another generator's
	if err != nil {
		t.Fatal(err)
	}
	c.Add(reserved.Range)
	close(slow.gate)
	take(<-answer)
	for range 50 {
		body, code := ask(t, nc, "leaf.segment.order", "")
		if code != "" {
			t.Fatalf("code %s: %s", code, body)
		}
		take(body)
	}
	if _, err := c.Check(); err != nil {
		t.Error(err)
	}
}

// Records that cannot be served are listed apart, and the pages go past them.
func TestUnservedTags(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := memory(t, "a", "c")
	records := store.Snapshot()
	for _, tag := range []allocator.Tag{{Name: "b d", MaxID: 1, Step: 10}, {Name: "b", MaxID: 1, Step: 0}, {Name: "订单", MaxID: 7, Step: 1}} {
		records[tag.Name] = tag
	}
	store.Restore(records)
	start(t, s, "n", store, nil)

	var served, unserved []string
	client := bus.NewClient(nc)
	for req := (bus.PageRequest{Limit: 1}); ; {
		page, err := client.Tags(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range page.Tags {
			served = append(served, tag.Tag)
		}
		for _, tag := range page.Unserved {
			unserved = append(unserved, tag.Tag)
			if tag.Problem == "" {
				t.Errorf("no problem is named with %q", tag.Tag)
			}
		}
		if req.After = page.Next; page.Next == "" {
			break
		}
	}
	if got, want := strings.Join(served, ","), "a,c"; got != want {
		t.Errorf("served: %s, want %s", got, want)
	}
	if got, want := strings.Join(unserved, ","), "b,b d,订单"; got != want {
		t.Errorf("not served: %s, want %s", got, want)
	}
}

// The state says that the store is unavailable, also while memory has IDs.
func TestStoreAwayInState(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	start(t, s, "n", memory(t, "order"), func(c *generator.Config) {
		c.StoreErr = func() error { return errors.New("unplugged") }
	})
	if _, code := ask(t, nc, "leaf.segment.order", ""); code != "" {
		t.Errorf("code %s", code)
	}
	states, err := bus.NewClient(nc).States(t.Context())
	if err != nil || len(states) != 1 || states[0].Ready || states[0].Reasons["store"] != "unplugged" {
		t.Errorf("States: %+v, %v", states, err)
	}
}

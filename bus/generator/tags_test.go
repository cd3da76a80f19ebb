package generator_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A tag whose record was removed by hand and that is created again begins above all that was claimed,
// by whichever generator, and none hands out an ID twice.
func TestCreateAboveWhatWasClaimed(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := memory(t)
	if _, err := store.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 1000}); err != nil {
		t.Fatal(err)
	}
	start(t, s, "first", store, withLedger(t))
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
		withLedger(t)(c)
		c.Tags = []allocator.Tag{{Name: "order", MaxID: 1, Step: 10}} // created on the start
	})
	tag, err := bus.NewClient(nc).Tag(t.Context(), "order")
	if err != nil || tag.MaxID < 1001 {
		t.Fatalf("created again: %+v, %v; IDs below 1001 were reserved", tag, err)
	}
	for range 50 {
		take()
	}

	// By an operator.
	store.Restore(map[string]allocator.Tag{})
	again, err := bus.NewClient(nc).CreateTag(t.Context(), bus.TagCreate{Tag: "order"})
	if err != nil || again.MaxID < 1011 {
		t.Errorf("created by an operator: %+v, %v; IDs above 1000 were handed out", again, err)
	}
	for range 50 {
		take()
	}
	if _, err := c.Check(); err != nil {
		t.Error(err)
	}
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

// A range that a generator has reserved and not received yet is lost when the tag is created again
// meanwhile and another generator claims the same IDs.
func TestCreateDuringRefill(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := memory(t, "order")
	slow := &delayed{store, make(chan struct{}), make(chan struct{}, 1)}
	start(t, s, "slow", slow, func(c *generator.Config) {
		withLedger(t)(c)
		c.MaxWait = testkit.Patience
	})
	open := sync.OnceFunc(func() { close(slow.gate) })
	t.Cleanup(open) // a test that fails before must end, too
	answer := make(chan string, 1)
	go func() {
		body, code := ask(t, nc, "leaf.segment.order", "5")
		answer <- code + body
	}()
	<-slow.waiting
	store.Restore(map[string]allocator.Tag{})
	quick := start(t, s, "quick", store, withLedger(t))
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
	ranges, err := quick.Take(t.Context(), "order", 10)
	if err != nil || ranges[0].First != 1 {
		t.Fatalf("the one that is quick takes %v, %v", ranges, err)
	}
	c.Add(ranges...)
	open()
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

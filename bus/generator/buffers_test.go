package generator_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// The pages of all generators come by node. An error of one hides no other.
func TestBuffers(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := bus.NewClient(nc)
	if pages, err := c.Buffers(testkit.Context(t), bus.PageRequest{}); err != nil || len(pages) > 0 {
		t.Errorf("with no generator: %+v, %v", pages, err)
	}
	store := memory(t, "order", "order.eu", "shop.order", "mail")
	start(t, s, "two", store, nil)
	start(t, s, "one", store, nil)
	// found asks for a page, and returns what came as a text.
	found := func(req bus.PageRequest) (string, error) {
		t.Helper()
		pages, err := c.Buffers(testkit.Context(t), req)
		var all []string
		for _, p := range pages {
			tags := []string{p.Node + ":"}
			for _, b := range p.Buffers {
				tags = append(tags, b.Tag)
			}
			if p.Next != "" {
				tags = append(tags, "next "+p.Next)
			}
			all = append(all, strings.Join(tags, " "))
		}
		return strings.Join(all, "; "), err
	}
	testkit.Eventually(t, "both have all tags in memory", func() bool {
		for _, tag := range []string{"order", "order.eu", "shop.order", "mail"} {
			for range 10 {
				if _, err := c.Take(testkit.Context(t), tag, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := found(bus.PageRequest{})
		return err == nil && got == "one: mail order order.eu shop.order; two: mail order order.eu shop.order"
	})
	for want, req := range map[string]bus.PageRequest{
		"one: order order.eu shop.order; two: order order.eu shop.order": {Contains: "order"},
		"one: order.eu; two: order.eu":                                   {Contains: "order", Prefix: "o", After: "order"},
		"one: order next order; two: order next order":                   {Contains: "rd", Limit: 1},
		"one:; two:": {Contains: "ORDER"},
	} {
		if got, err := found(req); err != nil || got != want {
			t.Errorf("%+v: %s, %v; want %s", req, got, err, want)
		}
	}
	if got, err := found(bus.PageRequest{Limit: 1001}); got != "" || !errors.Is(err, bus.BadRequest) {
		t.Errorf("a page that is too large: %s, %v", got, err)
	}

	refusal := nats.NewMsg("")
	refusal.Header.Set("Nats-Service-Error-Code", "429")
	refusal.Header.Set("Nats-Service-Error", "busy")
	refusal.Data = []byte(`{"code":429,"reason":"overloaded","message":"busy"}`)
	for _, answer := range []*nats.Msg{refusal, {Data: []byte("no JSON")}} {
		if _, err := nc.Subscribe(bus.SubjectBuffers, func(msg *nats.Msg) { msg.RespondMsg(answer) }); err != nil {
			t.Fatal(err)
		}
	}
	got, err := found(bus.PageRequest{Prefix: "mail"})
	if got != "one: mail; two: mail" {
		t.Errorf("beside two bad answers: %s", got)
	}
	if !errors.Is(err, bus.Overloaded) || !strings.Contains(fmt.Sprint(err), "cannot be read") {
		t.Errorf("the bad answers: %v", err)
	}
}

// A caller that goes on from the least Next misses no tag of any generator.
func TestBuffersPaging(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	c := bus.NewClient(natskit.Connect(t, s))
	tags := []string{"a", "aa", "b", "bb", "c", "cc", "d", "dd"}
	store := memory(t, tags...)
	take := func(tags ...string) {
		for _, tag := range tags {
			if _, err := c.Take(testkit.Context(t), tag, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	start(t, s, "one", store, nil)
	take("a", "b", "c", "d")
	start(t, s, "two", store, nil)
	take("aa", "bb", "cc", "dd") // from one or the other

	var found []string
	for req := (bus.PageRequest{Limit: 2}); ; {
		var pages []bus.BuffersPage
		testkit.Eventually(t, "an answer of each in time", func() bool {
			var err error
			if pages, err = c.Buffers(testkit.Context(t), req); err != nil {
				t.Fatalf("Buffers(%+v): %+v, %v", req, pages, err)
			}
			return len(pages) == 2
		})
		req.After = ""
		for _, p := range pages {
			if p.Next != "" && (req.After == "" || p.Next < req.After) {
				req.After = p.Next
			}
		}
		for _, p := range pages {
			for _, b := range p.Buffers {
				if req.After == "" || b.Tag <= req.After {
					found = append(found, b.Tag)
				}
			}
		}
		if req.After == "" {
			break
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, tags) {
		t.Errorf("the pages have %v, want %v", found, tags)
	}
}

// A request may name tags. The answer has those in memory, and no page.
func TestBuffersOfNamedTags(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	c := bus.NewClient(natskit.Connect(t, s))
	start(t, s, "one", memory(t, "order", "idle", "other"), nil)
	for _, tag := range []string{"order", "other"} {
		if _, err := c.Take(testkit.Context(t), tag, 1); err != nil {
			t.Fatal(err)
		}
	}
	pages, err := c.BuffersOf(testkit.Context(t), "order", "idle", "nosuch")
	if err != nil || len(pages) != 1 || len(pages[0].Buffers) != 1 || pages[0].Buffers[0].Tag != "order" || pages[0].Buffers[0].Taken != 1 || pages[0].Next != "" {
		t.Errorf("%+v, %v", pages, err)
	}
	if pages, err = c.BuffersOf(testkit.Context(t)); err != nil || pages != nil {
		t.Errorf("of no tag: %+v, %v", pages, err)
	}
	if _, err = c.BuffersOf(testkit.Context(t), slices.Repeat([]string{"order"}, 101)...); !errors.Is(err, bus.BadRequest) {
		t.Errorf("of too many: %v", err)
	}
}

// Operators see how long the IDs of a tag last, and which rules a generator knows of. The state of a generator must stay small.
func TestBuffersSayHowLongTagsLast(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	c := bus.NewClient(natskit.Connect(t, s))
	start(t, s, "one", memory(t, "order", "idle"), nil)
	outlast, quota, limit := allocator.Duration(time.Hour), allocator.Quota{PerSecond: 1000, Burst: 5000}, allocator.Limit(1<<31-1)
	if _, err := c.UpdateTag(testkit.Context(t), bus.TagUpdate{
		Tag: "order", RulesChange: allocator.RulesChange{Outlast: &outlast, Quota: &quota, Limit: &limit}}); err != nil {
		t.Fatal(err)
	}
	want := bus.TagRules{Outlast: outlast, Quota: quota, Limit: bus.ID(limit)}
	if _, err := c.Take(testkit.Context(t), "order", 1); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the rules, and a rate that falls until the IDs last for seconds", func() bool {
		pages, err := c.Buffers(testkit.Context(t), bus.PageRequest{})
		if err != nil || len(pages) != 1 || len(pages[0].Buffers) != 1 {
			return false
		}
		b := pages[0].Buffers[0]
		if b.Rules != want || b.Lasts == nil || *b.Lasts < 2 {
			return false
		}
		if lasts := float64(b.Left) / b.Rate; math.Abs(*b.Lasts-lasts) > 0.051 {
			t.Errorf("%d IDs at %v a second last %v s, not %v", b.Left, b.Rate, lasts, *b.Lasts)
		}
		return true
	})
	states, err := c.States(testkit.Context(t))
	if err != nil || len(states) != 1 || len(states[0].Busiest) != 1 {
		t.Fatalf("%+v, %v", states, err)
	}
	if b := states[0].Busiest[0]; b.Lasts == nil || b.Rules != (bus.TagRules{}) {
		t.Errorf("the state has %+v", b)
	}
}

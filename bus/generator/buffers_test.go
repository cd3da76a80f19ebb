package generator_test

import (
	"math"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

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

package generator_test

import (
	"context"
	"slices"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// held is a store whose Update waits until it is let go.
type held struct {
	allocator.Store
	reached, let chan struct{}
}

func (s *held) Update(ctx context.Context, tag string, c allocator.Change) (allocator.Tag, error) {
	select {
	case s.reached <- struct{}{}:
	default:
	}
	<-s.let
	return s.Store.Update(context.WithoutCancel(ctx), tag, c)
}

// elsewhere is a store that leaves changes to others.
type elsewhere struct{ *blind }

func (elsewhere) Update(context.Context, string, allocator.Change) (allocator.Tag, error) {
	return allocator.Tag{}, allocator.ErrUnavailable
}

// onEvent is an observer that hears of one kind of event.
type onEvent struct {
	what string
	then func()
}

func (o onEvent) Answered(generator.Answer)     {}
func (o onEvent) Claimed(allocator.Claimed)     {}
func (o onEvent) Refilled(allocator.Refilled)   {}
func (o onEvent) Regressed(allocator.Regressed) {}
func (o onEvent) EventPublished(what string) {
	if what == o.what {
		o.then()
	}
}

// The network of a generator hangs while it carries out a change of max_id. It must not take
// the others for gone because it did not hear them: they have IDs from below in memory.
func TestCommandWhileCutOff(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	memory := memory(t, "order")
	well := start(t, s, "well", elsewhere{&blind{Store: memory}}, nil)
	if _, err := well.Take(t.Context(), "order", 1); err != nil {
		t.Fatal(err)
	}
	store := &held{memory, make(chan struct{}, 1), make(chan struct{})}
	onEvent := onEvent{what: "leaf.tag.updated"}
	cut, link := behind(t, s, "cut", store, func(c *generator.Config) { c.Observer = &onEvent })
	onEvent.then = func() { link.Hang(false) } // at this moment it reads which peers are present
	testkit.Eventually(t, "both hear each other", func() bool { return cut.State().Clock.OffsetMS != nil })

	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	const to = bus.ID(1_000_000)
	changed := make(chan bus.TagChange, 1)
	go func() { // until it reaches the one that can
		maxID := to
		for ctx.Err() == nil {
			if c, err := bus.NewClient(nc, bus.Timeout(testkit.Patience)).UpdateTag(ctx, bus.TagUpdate{Tag: "order", MaxID: &maxID}); err == nil {
				changed <- c
				return
			}
		}
	}()
	<-store.reached
	link.Hang(true)
	testkit.Eventually(t, "it hears no peer", func() bool { return slices.Contains(cut.Readiness().Missing, "bus") })
	testkit.Eventually(t, "the other is taken for gone", func() bool { return cut.State().Clock.OffsetMS == nil })
	close(store.let)
	select {
	case c := <-changed:
		if len(c.Unheard) > 0 {
			t.Errorf("not heard: %v", c.Unheard)
		}
	case <-ctx.Done():
		t.Fatal("max_id was not moved")
	}
	if ranges, err := well.Take(t.Context(), "order", 1); err != nil || ranges[0].First < int64(to) {
		t.Errorf("after max_id was moved to %d: %v, %v", to, ranges, err)
	}
}

package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

func firstRange(tb testing.TB, b Backend) {
	s := b.Open(tb)
	t := create(tb, s, "order", 1, 100)
	if t.Name != "order" || t.MaxID != 1 || t.Step != 100 || t.Updated.IsZero() {
		tb.Errorf("Create returned %+v", t)
	}
	for _, want := range []struct {
		n int64
		r allocator.Range
	}{
		{1, allocator.Range{First: 1, Last: 100}},     // at least the step
		{100, allocator.Range{First: 101, Last: 200}}, // the step
		{250, allocator.Range{First: 201, Last: 450}}, // more than the step
	} {
		g := reserve(tb, s, "order", want.n)
		if g.Range != want.r || g.Step != 100 {
			tb.Errorf("Reserve(%d) = %v with step %d, want %v with step 100", want.n, g.Range, g.Step, want.r)
		}
	}
	if t, err := s.Get(within(tb), "order"); err != nil || t.MaxID != 451 {
		tb.Errorf("Get: max_id %d, %v; want 451", t.MaxID, err)
	}
	create(tb, s, "old", 70_001, 10)
	if g := reserve(tb, s, "old", 1); g.First != 70_001 {
		tb.Errorf("a tag created with max_id 70001 started at %d", g.First)
	}
}

func unknownTag(tb testing.TB, b Backend) {
	s := b.Open(tb)
	_, err := s.Reserve(within(tb), "nobody", 1)
	wantError(tb, "Reserve", err, allocator.ErrUnknownTag)
	_, err = s.Get(within(tb), "nobody")
	wantError(tb, "Get", err, allocator.ErrUnknownTag)
	_, err = s.Update(within(tb), "nobody", allocator.Change{})
	wantError(tb, "Update", err, allocator.ErrUnknownTag)
	_, err = s.Delete(within(tb), "nobody")
	wantError(tb, "Delete", err, allocator.ErrUnknownTag)
	if tags, err := s.List(within(tb), allocator.Query{Limit: 10}); err != nil || len(tags) != 0 {
		tb.Errorf("List: %v, %v; want none: asking must not create", tags, err)
	}
}

func tagsAreApart(tb testing.TB, b Backend) {
	s := b.Open(tb)
	// What some stores fold into one: letters' case, and names that contain
	// each other.
	names := []string{"order", "Order", "ORDER", "order.eu", "order/eu", "order=1", "order-", "_order"}
	for i, name := range names {
		create(tb, s, name, int64(i)*1000+1, 10)
	}
	for i, name := range names {
		if g := reserve(tb, s, name, 1); g.First != int64(i)*1000+1 {
			tb.Errorf("%s started at %d, want %d", name, g.First, i*1000+1)
		}
	}
}

func manyHandles(tb testing.TB, b Backend) {
	const handles, each = 8, 50
	first := b.Open(tb)
	create(tb, first, "order", 1, 7)
	var c Checker
	var wg sync.WaitGroup
	for i := range handles {
		s := b.Open(tb)
		ctx := within(tb)
		wg.Go(func() {
			last := int64(0)
			for j := range each {
				g, err := insist(ctx, s, "order", int64(1+(i+j)%20))
				if err != nil {
					tb.Errorf("Reserve: %v", err)
					return
				}
				if g.First <= last {
					tb.Errorf("a handle got %v after %d: IDs must trend upwards", g.Range, last)
				}
				last = g.Last
				c.Add(g.Range)
			}
		})
	}
	wg.Wait()
	ids, err := c.Check()
	if err != nil {
		tb.Errorf("%v", err)
	}
	if t, err := first.Get(within(tb), "order"); err != nil || t.MaxID != ids+1 {
		tb.Errorf("max_id is %d, %v; %d IDs were reserved", t.MaxID, err, ids)
	}
}

// lostAnswers runs allocators whose writes fail: not done, and done although
// they failed.
func lostAnswers(tb testing.TB, b Backend) {
	random := Seed(tb)
	create(tb, b.Open(tb), "order", 1, 20)
	var c Checker
	var wg sync.WaitGroup
	for range 3 {
		seed := random.Uint64()
		faults := rand.New(rand.NewPCG(seed, seed))
		s := NewFaulty(b.Open(tb), func() Fault { return Fault(faults.IntN(5)) }) // 3 and 4: none
		a := running(tb, allocator.Config{Store: s, MaxWait: timeout})
		ctx := within(tb)
		wg.Go(func() {
			for i := range 60 {
				ranges, err := a.Take(ctx, "order", int64(1+i%30))
				if err != nil {
					tb.Errorf("Take: %v", err)
					return
				}
				c.Add(ranges...)
			}
		})
	}
	wg.Wait()
	if _, err := c.Check(); err != nil {
		tb.Errorf("%v", err)
	}
}

func restart(tb testing.TB, b Backend) {
	s := b.Open(tb)
	create(tb, s, "order", 1, 10)
	before := reserve(tb, s, "order", 1)
	if after := reserve(tb, b.Open(tb), "order", 1); after.First != before.Last+1 {
		tb.Errorf("after %v a new handle got %v", before.Range, after.Range)
	}
}

// backwards sets the store back under two allocators that had used it. Each
// must refuse when its memory is used up, and go on when an operator has moved
// max_id.
func backwards(tb testing.TB, b Backend) {
	s := b.Open(tb)
	create(tb, s, "order", 1, 10)
	var c Checker
	take := func(a *allocator.Allocator) error {
		ranges, err := a.Take(within(tb), "order", 1)
		c.Add(ranges...)
		return err
	}
	// What one reserves the others see, as through the events.
	var as []*allocator.Allocator
	var mu sync.Mutex
	notify := func(e allocator.Event) {
		if r, ok := e.(allocator.Refilled); ok {
			mu.Lock()
			defer mu.Unlock()
			for _, a := range as {
				a.Observe(r.Tag, r.Last+1)
			}
		}
	}
	mu.Lock()
	for range 2 {
		as = append(as, running(tb, allocator.Config{Store: b.Open(tb), Notify: notify, MaxWait: timeout}))
	}
	mu.Unlock()
	for _, a := range as {
		if err := take(a); err != nil {
			tb.Fatalf("Take: %v", err)
		}
	}
	restore := b.Save(tb)
	for range 100 {
		for _, a := range as {
			if err := take(a); err != nil {
				tb.Fatalf("Take: %v", err)
			}
		}
	}
	restore()
	for i, a := range as {
		var err error
		for n := 0; err == nil && n < 1000; n++ {
			err = take(a)
		}
		wantError(tb, fmt.Sprintf("allocator %d, when the store went backwards", i), err, allocator.ErrRegressed)
		wantError(tb, fmt.Sprintf("allocator %d, asked again", i), take(a), allocator.ErrRegressed)
	}

	// The refused writes have moved max_id too.
	t, err := s.Get(within(tb), "order")
	if err != nil {
		tb.Fatalf("Get: %v", err)
	}
	seen := max(as[0].Seen("order"), as[1].Seen("order"), t.MaxID)
	t, err = s.Update(within(tb), "order", allocator.Change{MaxID: &seen})
	if err != nil {
		tb.Fatalf("Update: %v", err)
	}
	for i, a := range as {
		a.Apply(t)
		for ctx := within(tb); ; {
			if err = take(a); !errors.Is(err, allocator.ErrRegressed) || ctx.Err() != nil {
				break
			}
		}
		if err != nil {
			tb.Errorf("allocator %d, after max_id was moved to %d: %v", i, seen, err)
		}
	}
	if _, err := c.Check(); err != nil {
		tb.Errorf("%v", err)
	}
}

func createTwice(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	create(tb, s, "order", 1, 10)
	reserve(tb, s, "order", 1)
	_, err := other.Create(within(tb), allocator.Tag{Name: "order", MaxID: 1, Step: 99})
	wantError(tb, "Create of a tag that is there", err, allocator.ErrExists)
	if t, err := s.Get(within(tb), "order"); err != nil || t.MaxID != 11 || t.Step != 10 {
		tb.Errorf("a refused Create changed the tag: %+v, %v", t, err)
	}
}

func exhausted(tb testing.TB, b Backend) {
	s := b.Open(tb)
	create(tb, s, "order", math.MaxInt64-25, 10)
	reserve(tb, s, "order", 1)
	_, err := s.Reserve(within(tb), "order", 16)
	wantError(tb, "Reserve of 16 when 15 are left", err, allocator.ErrExhausted)
	_, err = s.Reserve(within(tb), "order", math.MaxInt64)
	wantError(tb, "Reserve of the largest int64", err, allocator.ErrExhausted)

	a := running(tb, allocator.Config{Store: b.Open(tb)})
	var c Checker
	for range 15 {
		ranges, err := a.Take(within(tb), "order", 1)
		if err != nil {
			tb.Fatalf("Take of what is left: %v", err)
		}
		c.Add(ranges...)
	}
	_, err = a.Take(within(tb), "order", 1)
	wantError(tb, "Take at the end", err, allocator.ErrExhausted)
	if ids, err := c.Check(); err != nil || ids != 15 {
		tb.Errorf("%d of the last 15 IDs were handed out, %v", ids, err)
	}
	if t, err := s.Get(within(tb), "order"); err != nil || t.MaxID != math.MaxInt64 {
		tb.Errorf("max_id is %d, %v; want the largest int64, never a wrap", t.MaxID, err)
	}
}

func contextDone(tb testing.TB, b Backend) {
	s := b.Open(tb)
	create(tb, s, "order", 1, 10)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if g, err := s.Reserve(ctx, "order", 1); err == nil {
		tb.Errorf("Reserve with a context that is done returned %v", g.Range)
	}
	// Done or not: what comes next must be unused.
	g := reserve(tb, s, "order", 1)
	if g.First != 1 && g.First != 11 {
		tb.Errorf("the next range is %v", g.Range)
	}
}

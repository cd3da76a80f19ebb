package allocatortest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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
	_, err := s.Reserve(within(tb), "nobody", 1, 1)
	wantError(tb, "Reserve", err, allocator.ErrUnknownTag)
	_, err = s.Get(within(tb), "nobody")
	wantError(tb, "Get", err, allocator.ErrUnknownTag)
	_, err = s.Update(within(tb), "nobody", allocator.Change{})
	wantError(tb, "Update", err, allocator.ErrUnknownTag)
	_, err = s.Delete(within(tb), "nobody", 1)
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
		wg.Go(func() {
			last := int64(0)
			for j := range each {
				g, err := insist(within(tb), s, "order", int64(1+(i+j)%20))
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
	if t, err := first.Get(within(tb), "order"); err != nil || t.MaxID <= ids || t.MaxID > ids+1 && !b.Gaps {
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
		wg.Go(func() {
			for i := range 60 {
				ranges, err := a.Take(within(tb), "order", int64(1+i%30))
				if err != nil {
					tb.Errorf("Take: %v", err)
					return
				}
				c.Add(ranges...)
			}
		})
	}
	wg.Wait()
	wantUnique(tb, &c)
}

func restart(tb testing.TB, b Backend) {
	s := b.Open(tb)
	create(tb, s, "order", 1, 10)
	before := reserve(tb, s, "order", 1)
	if after := reserve(tb, b.Open(tb), "order", 1); after.First != before.Last+1 {
		tb.Errorf("after %v a new handle got %v", before.Range, after.Range)
	}
}

// backwards sets the store back under two allocators that had used it. The store is moved up
// again, and neither refuses a request.
func backwards(tb testing.TB, b Backend) {
	create(tb, b.Open(tb), "order", 1, 10)
	var c Checker
	// Each hears what the other reserves.
	var as []*allocator.Allocator
	var mu sync.Mutex
	report := func(by int) func(string, allocator.Range) {
		return func(tag string, r allocator.Range) {
			mu.Lock()
			hearing := slices.Clone(as)
			mu.Unlock()
			for i, a := range hearing {
				if i != by {
					a.Reserved(tag, r)
				}
			}
		}
	}
	var advanced atomic.Int64
	notify := func(e allocator.Event) {
		if r, ok := e.(allocator.Regressed); ok && r.Action == allocator.Advanced {
			advanced.Add(1)
		}
	}
	for i := range 2 {
		a := running(tb, allocator.Config{Store: b.Open(tb), Notify: notify, Reserved: report(i), MaxWait: timeout})
		mu.Lock()
		as = append(as, a)
		mu.Unlock()
	}
	for _, a := range as {
		takeOne(tb, a, &c)
	}
	restore := b.Save(tb)
	for range 100 {
		for _, a := range as {
			takeOne(tb, a, &c)
		}
	}
	restore()
	for range 1000 {
		for _, a := range as {
			takeOne(tb, a, &c)
		}
	}
	wantUnique(tb, &c)
	if n := advanced.Load(); n == 0 {
		tb.Error("no allocator reported that the store went backwards")
	}
}

// raised reserves from above max_id: the store moves max_id up once, and then reserves from there.
func raised(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	create(tb, s, "order", 1, 10)
	reserve(tb, s, "order", 1)
	_, err := s.Reserve(within(tb), "order", 1, 501)
	moved, ok := errors.AsType[*allocator.AdvancedError](err)
	if !ok || *moved != (allocator.AdvancedError{Tag: "order", Got: 11, Seen: 501}) {
		tb.Fatalf("Reserve from 501 where max_id is 11: error %v, want that it was moved up", err)
	}
	first, err := other.Reserve(within(tb), "order", 1, 501)
	if err != nil || first.First < 501 || first.Len() != 10 {
		tb.Errorf("Reserve after max_id was moved up: %v, %v; want 10 IDs from 501 or above", first.Range, err)
	}
	next, err := s.Reserve(within(tb), "order", 1, 501)
	if err != nil || next.First != first.Last+1 {
		tb.Errorf("the next Reserve: %v, %v; want it from %d", next.Range, err, first.Last+1)
	}
	if g, err := s.Reserve(within(tb), "order", 1, 30); err != nil || g.First != next.Last+1 {
		tb.Errorf("Reserve from below max_id: %v, %v; want it from %d, for max_id only moves up", g.Range, err, next.Last+1)
	}
	if t, err := s.Delete(within(tb), "order", 2000); err != nil || t.MaxID != 2000 {
		tb.Errorf("Delete from 2000: %+v, %v", t, err)
	}
	if t := create(tb, other, "order", 1, 10); t.MaxID < 2000 {
		tb.Errorf("created again at %d, below the deletion's 2000", t.MaxID)
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
	_, err := s.Reserve(within(tb), "order", 16, 1)
	wantError(tb, "Reserve of 16 when 15 are left", err, allocator.ErrExhausted)
	_, err = s.Reserve(within(tb), "order", math.MaxInt64, 1)
	wantError(tb, "Reserve of the largest int64", err, allocator.ErrExhausted)

	a := running(tb, allocator.Config{Store: b.Open(tb)})
	var c Checker
	for range 15 {
		takeOne(tb, a, &c)
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
	if g, err := s.Reserve(ctx, "order", 1, 1); err == nil {
		tb.Errorf("Reserve with a context that is done returned %v", g.Range)
	}
	// Done or not: what comes next must be unused.
	g := reserve(tb, s, "order", 1)
	if g.First != 1 && g.First != 11 {
		tb.Errorf("the next range is %v", g.Range)
	}
}

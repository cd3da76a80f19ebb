package allocator_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

func TestCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		a := start(t, allocator.Config{Store: s, MaxBatch: 500})
		for _, c := range []struct {
			n    int64
			want error
		}{
			{0, allocator.ErrBadCount},
			{-1, allocator.ErrBadCount},
			{math.MinInt64, allocator.ErrBadCount},
			{501, allocator.ErrBatchTooLarge},
			{math.MaxInt64, allocator.ErrBatchTooLarge},
		} {
			for range 2 { // without a buffer, and (below) with one
				if ranges, err := a.Take(t.Context(), "order", c.n); !errors.Is(err, c.want) || ranges != nil {
					t.Errorf("Take(%d) = %v, %v; want %v", c.n, ranges, err, c.want)
				}
			}
		}
		if len(s.reserves()) != 0 {
			t.Errorf("refused counts reached the store: %v", s.reserves())
		}
		wantRanges(t, "the largest", take(t, a, 500), allocator.Range{First: 1, Last: 500})
		refused(t, a, 501, allocator.ErrBatchTooLarge, 0)
		refused(t, a, 0, allocator.ErrBadCount, 0)
	})
}

// TestBatchLargerThanMemory: one write for the missing part, whatever the step.
func TestBatchLargerThanMemory(t *testing.T) {
	for name, c := range map[string]struct {
		used   int64 // before
		n      int64
		writes []int64 // what each Reserve asks for
		causes []allocator.Cause
		step   int64 // after it
		want   []allocator.Range
	}{
		"new tag": {0, 1000, []int64{1000}, []allocator.Cause{allocator.CauseBatch}, 100,
			[]allocator.Range{{First: 1, Last: 1000}}},
		// One segment in memory: 91 are left, then the next is loaded as always.
		"one segment": {9, 1000, []int64{909, 100}, []allocator.Cause{allocator.CauseBatch, allocator.CausePrefetch}, 100,
			[]allocator.Range{{First: 10, Last: 1009}}},
		"two segments": {10, 1000, []int64{810, 200}, []allocator.Cause{allocator.CauseBatch, allocator.CausePrefetch}, 200,
			[]allocator.Range{{First: 11, Last: 1010}}},
		"a step exactly": {0, 100, []int64{100, 100}, []allocator.Cause{allocator.CauseDemand, allocator.CausePrefetch}, 100,
			[]allocator.Range{{First: 1, Last: 100}}},
		"one more than a step": {0, 101, []int64{101}, []allocator.Cause{allocator.CauseBatch}, 100,
			[]allocator.Range{{First: 1, Last: 101}}},
		// A step is reserved, though 10 would do.
		"the rest of memory and a bit": {10, 200, []int64{200}, []allocator.Cause{allocator.CauseDemand}, 200,
			[]allocator.Range{{First: 11, Last: 210}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newStore(t, 100)
				var r events
				a := start(t, allocator.Config{Store: s, Notify: r.notify})
				for range c.used {
					take(t, a, 1)
				}
				calls, refills := len(s.reserves()), len(told[allocator.Refilled](&r))
				wantRanges(t, "the batch", take(t, a, c.n), c.want...)

				var writes []int64
				for _, call := range s.reserves()[calls:] {
					// The first write of a tag does not know its step yet.
					writes = append(writes, call.n)
				}
				refilled := told[allocator.Refilled](&r)[refills:]
				if len(writes) != len(c.writes) || len(refilled) != len(c.writes) {
					t.Fatalf("writes %v, events %+v; want %v", writes, refilled, c.writes)
				}
				for i, e := range refilled {
					if writes[i] != c.writes[i] || e.Cause != c.causes[i] {
						t.Errorf("write %d asked for %d by %s, want %d by %s", i+1, writes[i], e.Cause, c.writes[i], c.causes[i])
					}
				}
				if got := a.Views(allocator.Query{Prefix: "order", Limit: 1})[0].Step; got != c.step {
					t.Errorf("the step is %d, want %d", got, c.step)
				}
			})
		})
	}
}

// TestBatchesDoNotAdapt: requests larger than the step leave it alone, however
// many there are.
func TestBatchesDoNotAdapt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r events
		a := start(t, allocator.Config{Store: s, Notify: r.notify})
		for range 20 {
			take(t, a, 1000)
		}
		for i, e := range told[allocator.Refilled](&r) {
			if e.Cause != allocator.CauseBatch || e.Step != 10 || e.Len() != 1000 {
				t.Errorf("refill %d: %+v; want 1000 IDs by batch, step 10", i+1, e)
			}
		}
	})
}

// TestAllOrNothing: a batch that fails takes nothing from memory.
func TestAllOrNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		a := start(t, allocator.Config{Store: s})
		take(t, a, 10)
		s.away()
		refused(t, a, 191, allocator.ErrUnavailable, 3*time.Second)
		refused(t, a, 191, allocator.ErrUnavailable, 0)
		wantRanges(t, "what is there", take(t, a, 190), allocator.Range{First: 11, Last: 200})
	})
}

// TestBatchKeepsItsShare: what a refill brought for a batch that needs more is
// put aside, or small requests would take it for ever.
func TestBatchKeepsItsShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		a := start(t, allocator.Config{Store: s, MaxStep: 1})
		take(t, a, 1) // 2-20 are in memory
		gate := s.gated()
		_, w, err := a.Request(nil, "order", 100)
		if w == nil || err != nil {
			t.Fatalf("Request: %v, %v", w, err)
		}
		synctest.Wait()
		take(t, a, 19) // goes past; the refill under way asks for 81 only
		gate <- struct{}{}
		synctest.Wait()
		if got := left(a); got != 0 {
			t.Errorf("%d IDs were left to others", got)
		}
		gate <- struct{}{}
		ranges, err := w.Wait(t.Context())
		if err != nil {
			t.Fatalf("Wait: %v", err)
		}
		wantRanges(t, "the batch", ranges, allocator.Range{First: 21, Last: 120})
		if calls := s.reserves(); calls[2].n != 81 || calls[3].n != 19 {
			t.Errorf("writes %v, want 81 and then the missing 19", calls[2:])
		}
		close(gate)
	})
}

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
		a := start(t, allocator.Config{Records: s, MaxBatch: 500})
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

// TestBatchesDoNotAdapt: requests larger than the step leave it alone, however
// many there are.
func TestBatchesDoNotAdapt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify})
		for range 20 {
			take(t, a, 1000)
		}
		for i, e := range published[allocator.Refilled](&r) {
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
		a := start(t, allocator.Config{Records: s})
		take(t, a, 10)
		s.away()
		refused(t, a, 191, allocator.ErrUnavailable, 3*time.Second)
		refused(t, a, 191, allocator.ErrUnavailable, 0)
		wantRanges(t, "what is there", take(t, a, 190), allocator.Range{First: 11, Last: 200})
	})
}

// TestBatchKeepsItsShare: what a refill brought for a batch that needs more is saved, or small requests would take it
// for ever. A batch that gives up leaves it to the requests behind it.
func TestBatchKeepsItsShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		a := start(t, allocator.Config{Records: s, MaxStep: 1})
		take(t, a, 1) // 2-20 are in memory
		gate := s.gated()
		w := queued(t, a, "order", 100)
		synctest.Wait()
		take(t, a, 19) // goes past; the refill under way asks for 81 only
		gate <- struct{}{}
		synctest.Wait()
		small := queued(t, a, "order", 1)
		if left, _ := a.Has("order"); left != 0 {
			t.Errorf("%d IDs were left to others", left)
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
		synctest.Wait()                // the refill for the small one is under way
		w = queued(t, a, "order", 100) // behind it
		gate <- struct{}{}
		synctest.Wait()
		if ranges, err = small.Wait(t.Context()); err != nil {
			t.Fatalf("Wait: %v", err)
		}
		wantRanges(t, "the small one", ranges, allocator.Range{First: 121, Last: 121})
		small = queued(t, a, "order", 9) // as many as are saved
		if !w.Withdraw() {
			t.Error("the batch does not wait")
		}
		if ranges, err = small.Wait(t.Context()); err != nil {
			t.Fatalf("the batch has left, and those behind it wait: %v", err)
		}
		wantRanges(t, "the next one", ranges, allocator.Range{First: 122, Last: 130})
		close(gate)
	})
}

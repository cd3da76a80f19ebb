package allocator_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// endless returns an allocator whose store has every tag and costs nothing. It keeps nothing but one number for all.
func endless(step int64) *allocator.Allocator {
	a := allocator.New(allocator.Config{})
	var next atomic.Int64
	a.Around(func(_ context.Context, _ string, n int64, _ func() (allocator.Grant, error)) (allocator.Grant, error) {
		n = max(n, step)
		last := next.Add(n)
		return allocator.Grant{Range: allocator.Range{First: last - n + 1, Last: last}, Step: step}, nil
	})
	return a
}

// once takes n IDs into dst, and waits if it must.
func once(tb testing.TB, a *allocator.Allocator, dst []allocator.Range, n int64) []allocator.Range {
	ranges, w, err := a.Request(dst, "order", n)
	if w != nil {
		ranges, err = w.Wait(context.Background())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return ranges
}

// TestTakeAllocatesNothing: one ID from memory costs no allocation.
func TestTakeAllocatesNothing(t *testing.T) {
	a := endless(1 << 40)
	dst := make([]allocator.Range, 0, 1)
	once(t, a, dst, 1)
	if got := testing.AllocsPerRun(1000, func() { once(t, a, dst, 1) }); got != 0 {
		t.Errorf("%v allocations for one ID", got)
	}
	if got := testing.AllocsPerRun(1000, func() {
		if ranges, err := a.Take(t.Context(), "order", 1); err != nil || len(ranges) != 1 {
			t.Error(len(ranges), err)
		}
	}); got != 0 {
		t.Errorf("%v allocations for one ID from Take", got)
	}
	if got := testing.AllocsPerRun(1000, func() { once(t, a, dst, 1000) }); got != 0 {
		t.Errorf("%v allocations for a thousand IDs", got)
	}
}

package allocator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestPrefetch takes ID after ID: the next segment must be loaded when 10 % of
// the current one is used, not before, and once.
func TestPrefetch(t *testing.T) {
	for _, c := range []struct{ size, used int64 }{
		{1, 1}, {2, 1}, {9, 1}, {10, 1}, {11, 2}, {19, 2}, {20, 2}, {21, 3}, {1000, 100}, {1001, 101},
	} {
		inBubble(t, fmt.Sprint(c.size), func(t *testing.T) {
			s := newStore(t, c.size)
			var r events
			// No adaptation: the second segment is as long as the first.
			a := start(t, allocator.Config{Records: s, Notify: r.notify, MaxStep: 1})
			for taken := int64(1); taken <= c.size+c.used; taken++ {
				wantRanges(t, "Take(1)", take(t, a, 1), allocator.Range{First: taken, Last: taken})
				want := 1
				if taken >= c.used {
					want = 2
				}
				if taken == c.size+c.used {
					want = 3
				}
				if got := len(s.reserves()); got != want {
					t.Fatalf("after %d of %d there were %d refills, want %d", taken, c.size, got, want)
				}
			}
			for i, e := range published[allocator.Refilled](&r) {
				want := allocator.CausePrefetch
				if i == 0 {
					want = allocator.CauseDemand
				}
				if e.Cause != want || e.Len() != c.size {
					t.Errorf("refill %d: %+v, want %d IDs by %s", i+1, e, c.size, want)
				}
			}
		})
	}
}

// TestMemoryFlowsOn: while the store hangs, or fails, what is in memory is served.
func TestMemoryFlowsOn(t *testing.T) {
	for name, c := range map[string]struct {
		trouble func(*store)
		err     error
	}{
		"hangs": {func(s *store) { s.slow(time.Hour) }, allocator.ErrTimedOut},
		"fails": {(*store).away, allocator.ErrUnavailable},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, 100)
			a := start(t, allocator.Config{Records: s})
			take(t, a, 9)
			c.trouble(s)
			begin := time.Now()
			for range 91 {
				take(t, a, 1)
			}
			if took := time.Since(begin); took != 0 {
				t.Errorf("IDs in memory took %v", took)
			}
			refused(t, a, 1, c.err, 3*time.Second)
			s.back()
			time.Sleep(6 * time.Second) // a write that hangs is given up after five
			wantRanges(t, "afterwards", take(t, a, 1), allocator.Range{First: 101, Last: 101})
		})
	}
}

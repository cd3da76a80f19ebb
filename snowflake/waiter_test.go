package snowflake_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
)

// request asks for IDs that must be waited for.
func (n *node) request(count int64) *allocator.Later {
	n.w.t.Helper()
	ranges, w, err := n.Request(nil, count)
	if w == nil {
		n.w.t.Fatalf("Request(%d): %v, %v; want one that waits", count, ranges, err)
	}
	return w
}

// refuses asks for IDs that must be refused at once.
func (n *node) refuses(count int64, want error) {
	n.w.t.Helper()
	if ranges, w, err := n.Request(nil, count); w != nil || !errors.Is(err, want) {
		n.w.t.Errorf("Request(%d): %v, waits: %v, %v; want %v", count, ranges, w != nil, err, want)
	}
}

// wait waits for a request that was made to wait, and must end like this after
// exactly that time.
func (n *node) wait(ctx context.Context, w *allocator.Later, want error, after time.Duration) {
	n.w.t.Helper()
	begin := time.Now()
	ranges, err := w.Wait(ctx)
	if took := time.Since(begin); !errors.Is(err, want) || err != nil && ranges != nil || took != after {
		n.w.t.Errorf("Wait: %v, %v after %v; want %v after %v", ranges, err, took, want, after)
	}
	n.w.ids.Add(ranges...)
}

// TestOverloaded: what waits is bounded in requests and in IDs. A request that gives up leaves room.
func TestOverloaded(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	const capacity = 3000 * 4096 // all IDs that come in MaxWait
	for name, c := range map[string]struct {
		most   int64   // requests
		counts []int64 // IDs of those that fill it
	}{
		"requests": {4, []int64{1, 100, 1, 100}},
		"IDs":      {0, append(slices.Repeat([]int64{1_000_000}, capacity/1_000_000), capacity%1_000_000)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				// No request is served before the registry has answered, which is asked twice.
				n := w.start(func(s *setup) { s.slow, s.MaxWaiting = time.Second/2, c.most })
				var waiters []*allocator.Later
				for _, count := range c.counts {
					waiters = append(waiters, n.request(count))
				}
				n.refuses(1, snowflake.ErrOverloaded)
				n.refuses(1000, snowflake.ErrOverloaded)
				if got := n.State().Waiting; got != len(c.counts) {
					t.Errorf("%d requests wait, want %d", got, len(c.counts))
				}
				n.wait(gone, waiters[0], context.Canceled, 0)
				waiters[0] = n.request(c.counts[0])
				n.refuses(1, snowflake.ErrOverloaded)
				if c.most > 0 {
					for i, after := range []time.Duration{time.Second, 0, 0, 0} {
						n.wait(t.Context(), waiters[i], nil, after)
					}
				}
			})
		})
	}
}

// TestDrain: from the end of Run on nothing waits. What need not wait is
// served until Close.
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		time.Sleep(time.Second)
		waiters := []*allocator.Later{n.request(1_000_000), n.request(100)}
		n.end()
		for _, waiter := range waiters {
			n.wait(t.Context(), waiter, snowflake.ErrClosed, 0)
		}
		n.wantEvents("acquired 0", "released 0")
		for range 10 {
			time.Sleep(time.Millisecond)
			n.take(0)
			n.refuses(4096, snowflake.ErrClosed)
		}
		if err := n.State().Err; err != nil {
			t.Errorf("the state is %v while IDs are served", err)
		}
		if err := n.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		time.Sleep(time.Millisecond)
		n.refused(snowflake.ErrClosed)
		if err := n.State().Err; !errors.Is(err, snowflake.ErrClosed) {
			t.Errorf("the state is %v, want %v", err, snowflake.ErrClosed)
		}
	})
}

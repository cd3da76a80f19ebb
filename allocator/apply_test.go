package allocator_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/leafbus/leafbus/allocator"
)

// TestMaxIDMovedDuringRefill: a range below the new max_id that arrives after
// it is dropped, also if an older record came in between.
func TestMaxIDMovedDuringRefill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify})
		gate := make(chan struct{})
		s.onReserved(func(string, allocator.Range) error { <-gate; return nil })
		w := queued(t, a, "order", 5)
		synctest.Wait() // 1-10 is reserved, the answer is on its way
		s.move(1000)
		synctest.Wait()
		a.Push(allocator.Stored{Tag: allocator.Tag{Name: "order", MaxID: 11, Step: 10, Floor: 3}})
		close(gate)
		ranges, err := w.Wait(t.Context())
		if err != nil {
			t.Fatalf("Wait: %v", err)
		}
		wantRanges(t, "Wait", ranges, allocator.Range{First: 1000, Last: 1004})
		r.wantEpisodes(t, "regressed", 0, 0)
	})
}

// TestExhaustedWaiters: of the requests that wait for the last IDs, a large one does not keep them from a smaller one,
// or lose them.
func TestExhaustedWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 4)
		s.rule(`{"limit":"10"}`)
		a := start(t, allocator.Config{Records: s})
		if got := take(t, a, 3); !slices.Equal(got, []allocator.Range{{First: 1, Last: 3}}) {
			t.Errorf("got %v", got)
		}
		synctest.Wait()
		large, four, five := request(t, a, 8), request(t, a, 4), request(t, a, 5)
		large.refused(t, allocator.ErrExhausted)
		four.want(t, allocator.Range{First: 4, Last: 7})
		five.refused(t, allocator.ErrExhausted)
		refused(t, a, 4, allocator.ErrExhausted, 0)
		if got := take(t, a, 3); !slices.Equal(got, []allocator.Range{{First: 8, Last: 10}}) {
			t.Errorf("got %v", got)
		}
		if v := a.Views(allocator.Query{Limit: 1})[0]; v.Left != 0 {
			t.Errorf("the view is %+v", v)
		}
	})
}

package allocator_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
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

func TestDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		a := start(t, allocator.Config{Records: s})
		var c allocatortest.Checker
		for range 3 {
			c.Add(take(t, a, 3)...)
			tomb := s.remove()
			synctest.Wait()
			if a.Tags() != 0 {
				t.Errorf("the deleted tag is in memory: %+v", a.Views(allocator.Query{Limit: 9}))
			}
			for range 3 {
				err := refused(t, a, 1, allocator.ErrUnknownTag, 0)
				if !errors.Is(err, allocator.ErrDeleted) {
					t.Errorf("error %v, want ErrDeleted", err)
				}
			}
			if a.Tags() != 0 {
				t.Errorf("asking for the deleted tag left it in memory")
			}
			s.create("order", 1, 10)
			ranges := take(t, a, 3)
			if ranges[0].First < tomb.MaxID {
				t.Errorf("after %d was reached, the tag went on with %v", tomb.MaxID, ranges)
			}
			c.Add(ranges...)
			// The tombstone, seen late, drops nothing of the new tag.
			held := left(a)
			a.Push(tomb)
			if got := left(a); got != held {
				t.Errorf("an old tombstone dropped %d IDs", held-got)
			}
		}
		unique(t, &c)
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

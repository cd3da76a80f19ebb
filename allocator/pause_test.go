package allocator_test

import (
	"context"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestPause: when Push returns, a paused tag hands out nothing, refuses the requests that wait, and reserves nothing.
// Resumed, it goes on with the IDs in memory.
func TestPause(t *testing.T) {
	for _, order := range []allocator.Order{allocator.Trend, allocator.Strict} {
		bubble(t, func(t *testing.T) {
			s := newStore(t, 100)
			if order == allocator.Strict {
				s = newStrict(t, 1)
			}
			a := start(t, allocator.Config{Records: unwatched{s}})
			take(t, a, 10)
			memory := left(a)
			gate := s.gated()
			waiting := request(t, a, 1000)
			paused := s.rule(`{"paused":true}`)
			a.Push(paused)
			waiting.refused(t, allocator.ErrPaused)
			refused(t, a, 1, allocator.ErrPaused, 0)
			if v := a.Views(allocator.Query{Limit: 1}); v[0].State != allocator.StatePaused {
				t.Errorf("%v order: the state is %s", order, v[0].State)
			}
			if n, refills := a.Has("order"); n != 0 || refills {
				t.Errorf("%v order: it offers %d IDs to others, %v", order, n, refills)
			}
			pass(t, gate) // what was sent before the pause reserves nothing, because the record is paused
			s.back()
			time.Sleep(time.Hour)
			calls := len(s.reserves())
			for range 10 {
				refused(t, a, 1, allocator.ErrPaused, 0)
				time.Sleep(time.Hour)
			}
			if n := len(s.reserves()); n != calls {
				t.Errorf("%v order: the store was asked %d times of a paused tag", order, n-calls)
			}
			if got := s.maxID(); got != paused.MaxID {
				t.Errorf("%v order: max_id moved from %d to %d while the tag was paused", order, paused.MaxID, got)
			}
			a.Push(s.rule(`{"paused":false}`))
			if n := left(a); n != memory {
				t.Errorf("%v order: %d IDs in memory when the tag goes on, %d before", order, n, memory)
			}
			wantRanges(t, "the next ID", take(t, a, 1), allocator.Range{First: 11, Last: 11})
			a.Push(paused) // late
			take(t, a, 1)
		})
	}
}

// TestPausedByAnOldRecord: a store that refuses by rules that an operator has changed since has failed. The tag is not
// paused here, and the refill tries again.
func TestPausedByAnOldRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		a := start(t, allocator.Config{Records: unwatched{s}})
		take(t, a, 1)
		old := s.rule(`{"paused":true}`)
		a.Push(s.rule(`{"paused":false}`))
		s.onReserve(func(context.Context, string, int64) error { return &allocator.PausedError{Rules: old.Rules} })
		waiting := request(t, a, 1000)
		time.Sleep(time.Second)
		if n := len(s.reserves()); n > 10 {
			t.Errorf("the store was asked %d times in a second", n)
		}
		if v := a.Views(allocator.Query{Limit: 1}); v[0].State != allocator.StateFailing {
			t.Errorf("the state is %s, while the store has an old record", v[0].State)
		}
		s.back()
		if <-waiting.done; waiting.err != nil {
			t.Error(waiting.err)
		}
	})
}

// TestPausedWhileTheStoreIsAway: a paused tag is not tried again. So it has no alerts, and does not count as one whose
// refills fail.
func TestPausedWhileTheStoreIsAway(t *testing.T) {
	for _, order := range []allocator.Order{allocator.Trend, allocator.Strict} {
		bubble(t, func(t *testing.T) {
			s := newStore(t, 100)
			if order == allocator.Strict {
				s = newStrict(t, 1)
			}
			var r events
			a := start(t, allocator.Config{Records: unwatched{s}, Notify: r.notify})
			take(t, a, 10)
			s.away()
			_, _ = a.Take(t.Context(), "order", 1000)
			if a.Failing().Store == nil {
				t.Fatal("the store is not known to fail")
			}
			a.Push(s.rule(`{"paused":true}`))
			time.Sleep(20 * time.Second)
			if f := a.Failing(); f.Store != nil || f.Tags != 0 {
				t.Errorf("%v order: a paused tag fails: %+v", order, f)
			}
			r.wantEpisodes(t, "refill_failed", 1, 1)
			r.wantEpisodes(t, "starved", 1, 1)
			s.back()
			a.Push(s.rule(`{"paused":false}`))
			take(t, a, 1000)
			if err := a.CheckTroubles(); err != nil {
				t.Error(err)
			}
		})
	}
}

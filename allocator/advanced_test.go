package allocator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// TestAdvanced: a store that went backwards is moved up, and nobody is refused or waits. Each time
// there is one alert, and one that it is over.
func TestAdvanced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r events
		a := start(t, allocator.Config{Records: unwatched{s}, Notify: r.notify, MaxStep: 1})
		var c allocatortest.Checker
		begin := time.Now()
		first := s.Snapshot()
		for i := range 3 {
			for range 35 {
				c.Add(take(t, a, 1)...)
			}
			backup := s.Snapshot()
			for range 35 {
				c.Add(take(t, a, 1)...)
			}
			if i == 2 {
				backup = first
			}
			s.Restore(backup)
			drain(t, a, &c) // what is in memory was reserved before
			seen := a.Seen("order")
			for range 100 {
				c.Add(take(t, a, 1)...)
			}
			r.wantEpisodes(t, "regressed", i+1, i+1)
			got := published[allocator.Regressed](&r)[i]
			want := allocator.Regressed{Tag: "order", Got: backup["order"].MaxID, Action: allocator.Advanced, Seen: got.Seen}
			if got != want || got.Seen > seen || got.Seen <= got.Got {
				t.Errorf("time %d: the alert is %+v, want %+v", i+1, got, want)
			}
			if v := a.Views(allocator.Query{Limit: 1})[0]; v.State != allocator.StateOK {
				t.Errorf("the view is %+v", v)
			}
		}
		unique(t, &c)
		r.wantEpisodes(t, "refill_failed", 0, 0)
		r.wantEpisodes(t, "starved", 0, 0)
		if took := time.Since(begin); took > 20*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestEpisodesOfAdvances: a store that goes back again before a range could be reserved is one episode.
func TestEpisodesOfAdvances(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		times := int64(0)
		s.onReserve(func(context.Context, string, int64) error {
			if times++; times < 5 {
				return &allocator.AdvancedError{Tag: "order", Got: times, Seen: 100}
			}
			return nil
		})
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify})
		take(t, a, 1)
		r.wantEpisodes(t, "regressed", 1, 1)
	})
}

// TestBelowFrom: a store that returns a range below what was asked for is not believed.
func TestBelowFrom(t *testing.T) {
	for name, c := range map[string]struct{ seen, wait int64 }{"at it": {50, 0}, "one below": {51, 3}, "far below": {5000, 3}} {
		inBubble(t, name, func(t *testing.T) {
			grant := allocator.Grant{Range: allocator.Range{First: 50, Last: 59}, Step: 10}
			s := newStore(t, 10)
			s.answer = &grant
			a := start(t, allocator.Config{Records: s})
			hear(a, "order", c.seen)
			if c.wait == 0 {
				ranges, err := a.Take(t.Context(), "order", 1)
				if fmt.Sprint(ranges) != "[50]" || err != nil {
					t.Errorf("Take: %v, %v", ranges, err)
				}
				return
			}
			refused(t, a, 1, allocator.ErrUnavailable, time.Duration(c.wait)*time.Second)
			if n, seen := left(a), a.Seen("order"); n != 0 || seen != c.seen {
				t.Errorf("%d IDs are in memory, and all below %d seem in use", n, seen)
			}
		})
	}
}

package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
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
		a := start(t, allocator.Config{Store: s, Notify: r.notify, MaxStep: 1})
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
			got := told[allocator.Regressed](&r)[i]
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
		a := start(t, allocator.Config{Store: s, Notify: r.notify})
		take(t, a, 1)
		r.wantEpisodes(t, "regressed", 1, 1)
	})
}

// TestAdvancedAtSeen: exactly at the mark nothing is moved, one below it is.
func TestAdvancedAtSeen(t *testing.T) {
	for _, c := range []struct{ max, seen int64 }{
		{100, 0}, {100, 99}, {100, 100}, {100, 101}, {100, 1 << 60}, {1, 1}, {1, 2},
	} {
		bubble(t, func(t *testing.T) {
			s := newStore(t, 10)
			s.create("other", c.max, 10)
			var r events
			a := start(t, allocator.Config{Store: s, Notify: r.notify})
			hear(a, "other", c.seen)
			ranges, err := a.Take(t.Context(), "other", 1)
			if err != nil || ranges[0].First != max(c.max, c.seen) {
				t.Errorf("max_id %d, seen %d: %v, %v", c.max, c.seen, ranges, err)
			}
			moved := 0
			if c.seen > c.max {
				moved = 1
			}
			r.wantEpisodes(t, "regressed", moved, moved)
			wantRanges(t, "another tag", take(t, a, 1), allocator.Range{First: 1, Last: 1})
		})
	}
}

// TestAdvancedByAnother: if another generator has moved the store up, this one goes on above it and
// raises no alert.
func TestAdvancedByAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r [2]events
		var as [2]*allocator.Allocator
		for i := range as {
			as[i] = start(t, allocator.Config{Store: s.twin(), Notify: r[i].notify})
			hear(as[i], "order", 5000)
		}
		var c allocatortest.Checker
		for range 50 {
			c.Add(take(t, as[0], 1)...)
			c.Add(take(t, as[1], 1)...)
		}
		unique(t, &c)
		r[0].wantEpisodes(t, "regressed", 1, 1)
		r[1].wantEpisodes(t, "regressed", 0, 0)
	})
}

// TestAdvancedAndAway: the alert is over when the store answers again, not before.
func TestAdvancedAndAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r events
		a := start(t, allocator.Config{Store: advancing{s}, Notify: r.notify})
		hear(a, "order", 1000)
		refused(t, a, 1, allocator.ErrUnavailable, 3*time.Second)
		r.wantEpisodes(t, "regressed", 1, 0)
		s.back()
		time.Sleep(time.Second)
		r.wantEpisodes(t, "regressed", 1, 1)
		wantRanges(t, "afterwards", take(t, a, 1), allocator.Range{First: 1000, Last: 1000})
	})
}

// advancing is a store that is away as soon as it was moved up.
type advancing struct{ *store }

func (s advancing) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	g, err := s.store.Reserve(ctx, tag, n, from)
	if _, ok := errors.AsType[*allocator.AdvancedError](err); ok {
		s.away()
	}
	return g, err
}

// TestAdvancedFloor: a store that falls behind an operator's max_id, of which nothing was reserved yet,
// went backwards too.
func TestAdvancedFloor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		a := start(t, allocator.Config{Store: s})
		take(t, a, 1)
		backup := s.Snapshot()
		const floor = 1_000_000_000_000
		s.move(floor)
		synctest.Wait()
		s.Restore(backup)
		wantRanges(t, "afterwards", take(t, a, 1), allocator.Range{First: floor, Last: floor})
	})
}

// TestAdvancedRestart: the marks in the file outlive the process, and the tag.
func TestAdvancedRestart(t *testing.T) {
	for name, reset := range map[string]func(*store, map[string]allocator.Tag){
		"restored":             func(s *store, backup map[string]allocator.Tag) { s.Restore(backup) },
		"deleted and restored": func(s *store, backup map[string]allocator.Tag) { s.remove(); s.Restore(backup) },
		"lost and created again": func(s *store, _ map[string]allocator.Tag) {
			s.Restore(map[string]allocator.Tag{})
			s.create("order", 1, 10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "marks")
			bubble(t, func(t *testing.T) {
				s := newStore(t, 10)
				backup := s.Snapshot()
				var c allocatortest.Checker
				for i := range 3 {
					marks, err := allocator.OpenMarks(path) // never closed: killed
					if err != nil {
						t.Fatal(err)
					}
					var r events
					a, stop := startStop(t, allocator.Config{Store: s, Marks: marks, Notify: r.notify})
					for range 35 {
						c.Add(take(t, a, 1)...)
					}
					r.wantEpisodes(t, "regressed", min(i, 1), min(i, 1))
					stop()
					reset(s, backup)
				}
				if ids := unique(t, &c); ids != 3*35 {
					t.Errorf("%d IDs", ids)
				}
			})
		})
	}
}

// TestAdvancedAndDeleted: a tag that is deleted and created again goes on above all that was seen,
// whatever the store knows.
func TestAdvancedAndDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		a := start(t, allocator.Config{Store: s, MaxStep: 1})
		var c allocatortest.Checker
		regress(t, s, a, &c)
		s.remove() // the tombstone is below what was seen
		synctest.Wait()
		if ranges, err := a.Take(t.Context(), "order", 1); !errors.Is(err, allocator.ErrUnknownTag) {
			t.Errorf("Take of the deleted tag: %v, %v", ranges, err)
		}
		s.create("order", 1, 10)
		for range 50 {
			c.Add(take(t, a, 1)...)
		}
		unique(t, &c)
	})
}

// TestBelowFrom: a store that returns a range below what was asked for is not believed.
func TestBelowFrom(t *testing.T) {
	for name, c := range map[string]struct{ seen, wait int64 }{"at it": {50, 0}, "one below": {51, 3}, "far below": {5000, 3}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				grant := allocator.Grant{Range: allocator.Range{First: 50, Last: 59}, Step: 10}
				a := start(t, allocator.Config{Store: nonsense{newStore(t, 10), grant}})
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
		})
	}
}

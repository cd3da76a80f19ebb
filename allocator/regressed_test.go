package allocator_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// regress uses 35 IDs of "order" with step 10 and sets the store back to what
// it was after the first 10, then uses up what is in memory. The allocator
// has seen all below what is returned.
func regress(t *testing.T, s *store, a *allocator.Allocator, c *allocatortest.Checker) (seen int64) {
	t.Helper()
	c.Add(take(t, a, 1)...)
	backup := s.Snapshot()
	for range 34 {
		c.Add(take(t, a, 1)...)
	}
	s.Restore(backup)
	// What is in memory was reserved before, and is served.
	drain(t, a, c)
	seen = a.Seen("order")
	if ids := unique(t, c); ids != seen-1 {
		t.Fatalf("%d IDs were served, want all below %d", ids, seen)
	}
	return seen
}

// TestRegressed: if a store that went backwards must not be moved up, nothing of the tag is served or
// reserved until an operator moves max_id.
func TestRegressed(t *testing.T) {
	for name, c := range map[string]struct {
		watched bool
		within  time.Duration // of the operator's word IDs are served
	}{
		"told":          {true, 0},
		"asked, untold": {false, 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newShared(t, 10)
				var r events
				cfg := allocator.Config{Store: s, Notify: r.notify, MaxStep: 1}
				if !c.watched {
					cfg.Store = unwatched{s}
				}
				a := start(t, cfg)
				var ids allocatortest.Checker
				seen := regress(t, s, a, &ids)
				err := refused(t, a, 1, allocator.ErrRegressed, 0)
				regressed, ok := errors.AsType[*allocator.RegressedError](err)
				if !ok || regressed.Tag != "order" || regressed.Seen != seen || regressed.Got >= seen {
					t.Fatalf("error %+v, want one with all that was seen, %d", err, seen)
				}

				calls, maxID := len(s.reserves()), s.maxID()
				for range 100 {
					refused(t, a, 1, allocator.ErrRegressed, 0)
					refused(t, a, 1000, allocator.ErrRegressed, 0)
					time.Sleep(time.Minute)
				}
				if len(s.reserves()) != calls || s.maxID() != maxID {
					t.Errorf("%d reservations while the tag was refused", len(s.reserves())-calls)
				}
				if v := a.Views(allocator.Query{Limit: 1})[0]; v.State != "regressed" || v.Error != err.Error() {
					t.Errorf("the view is %+v", v)
				}

				// Not the operator's word, or not enough.
				s.restep(10)
				time.Sleep(time.Minute)
				refused(t, a, 1, allocator.ErrRegressed, 0)
				a.Apply(allocator.Tag{Name: "order", MaxID: seen - 1, Step: 10, Floor: seen}) // from before
				time.Sleep(time.Minute)
				refused(t, a, 1, allocator.ErrRegressed, 0)
				s.move(seen - 1)
				time.Sleep(time.Minute)
				refused(t, a, 1, allocator.ErrRegressed, 0)
				if _, err := s.Memory.Reserve(t.Context(), "order", 1000, 1); err != nil { // another generator
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				refused(t, a, 1, allocator.ErrRegressed, 0)
				if len(s.reserves()) != calls {
					t.Errorf("%d reservations while the tag was refused", len(s.reserves())-calls)
				}
				r.wantEpisodes(t, "regressed", 1, 0)
				if got := told[allocator.Regressed](&r)[0]; got != (allocator.Regressed{Tag: "order", Got: regressed.Got, Seen: seen,
					Action: allocator.Refused, InDoubt: allocator.Range{First: regressed.Got, Last: seen - 1}}) {
					t.Errorf("told was %+v", got)
				}

				to := s.maxID()
				s.move(to) // the same max_id: that it is right is what counts
				time.Sleep(c.within)
				synctest.Wait()
				begin := time.Now()
				ranges := take(t, a, 1)
				ids.Add(ranges...)
				wantRanges(t, "afterwards", ranges, allocator.Range{First: to, Last: to})
				if took := time.Since(begin); took != 0 {
					t.Errorf("it took %v more", took)
				}
				r.wantEpisodes(t, "regressed", 1, 1)
				for range 100 {
					ids.Add(take(t, a, 1)...)
				}
				unique(t, &ids)
				r.wantEpisodes(t, "regressed", 1, 1)
				r.wantEpisodes(t, "refill_failed", 0, 0)
			})
		})
	}
}

// TestRegressedAtSeen: exactly at the mark is allowed, one below is not.
func TestRegressedAtSeen(t *testing.T) {
	for _, c := range []struct {
		max, seen int64
		ok        bool
	}{
		{100, 0, true}, {100, 99, true}, {100, 100, true}, {100, 101, false}, {100, 1 << 60, false}, {1, 1, true}, {1, 2, false},
	} {
		bubble(t, func(t *testing.T) {
			s := newShared(t, 10)
			s.create("other", c.max, 10)
			a := start(t, allocator.Config{Store: s})
			hear(a, "other", c.seen)
			if got := a.Seen("other"); got != c.seen {
				t.Errorf("Seen = %d, want %d", got, c.seen)
			}
			ranges, err := a.Take(t.Context(), "other", 1)
			if c.ok && (err != nil || ranges[0].First != c.max) || !c.ok && !errors.Is(err, allocator.ErrRegressed) {
				t.Errorf("max_id %d, seen %d: %v, %v", c.max, c.seen, ranges, err)
			}
			take(t, a, 1) // another tag's marks are its own
		})
	}
}

// TestHeardBeforeTheRequest: what others report counts from the next request on. What comes later may
// well be about ranges that lie above.
func TestHeardBeforeTheRequest(t *testing.T) {
	for name, c := range map[string]struct {
		before, during, after bool
		err                   error
	}{
		"never":                          {},
		"before the request":             {before: true, err: allocator.ErrRegressed},
		"when it was sent":               {during: true},
		"when it was done, not answered": {after: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newShared(t, 10)
				var a *allocator.Allocator
				observe := func(yes bool) {
					if yes {
						hear(a, "order", 1_000_000)
					}
				}
				a = start(t, allocator.Config{Store: s, MaxStep: 1})
				gate := s.gated()
				s.onReserved(func(string, allocator.Range) error { observe(c.after); return nil })
				observe(c.before)
				_, w, err := a.Request(nil, "order", 1)
				if w == nil || err != nil {
					t.Fatalf("Request: %v, %v", w, err)
				}
				synctest.Wait()
				observe(c.during)
				gate <- struct{}{}
				synctest.Wait()
				close(gate)
				ranges, err := w.Wait(t.Context())
				if !errors.Is(err, c.err) {
					t.Fatalf("Wait: %v, %v; want error %v", ranges, err, c.err)
				}
				if c.before || !c.during && !c.after {
					return
				}
				// From the next request on it counts.
				drain(t, a, new(allocatortest.Checker))
				refused(t, a, 1, allocator.ErrRegressed, 0)
			})
		})
	}
}

// TestRegressedFloor: a store that falls behind an operator's max_id, of which
// nothing was reserved yet, went backwards too. (To reserve until it is beyond
// again could take for ever.)
func TestRegressedFloor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared(t, 10)
		a := start(t, allocator.Config{Store: s})
		take(t, a, 1)
		backup := s.Snapshot()
		const floor = 1_000_000_000_000
		s.move(floor)
		synctest.Wait()
		s.Restore(backup)
		before := len(s.reserves())
		err := refused(t, a, 1, allocator.ErrRegressed, 0)
		if regressed, ok := errors.AsType[*allocator.RegressedError](err); ok && regressed.Seen != floor {
			t.Errorf("%v", err)
		}
		if n := len(s.reserves()) - before; n != 1 {
			t.Errorf("%d reservations, want 1", n)
		}
		s.move(floor)
		synctest.Wait()
		wantRanges(t, "afterwards", take(t, a, 1), allocator.Range{First: floor, Last: floor})
	})
}

// TestRegressedMemory: what was in memory before is served while the store is
// refused, until the operator says where to go on.
func TestRegressedMemory(t *testing.T) {
	for name, watched := range map[string]bool{"told": true, "untold": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newShared(t, 100)
				cfg := allocator.Config{Store: s}
				if !watched {
					cfg.Store = unwatched{s}
				}
				a := start(t, cfg)
				backup := s.Snapshot()
				take(t, a, 9)
				s.Restore(backup)
				take(t, a, 1) // the refill of the next segment finds out
				refused(t, a, 91, allocator.ErrRegressed, 0)
				wantRanges(t, "from memory", take(t, a, 50), allocator.Range{First: 11, Last: 60})
				s.move(5000)
				time.Sleep(8 * time.Second)
				synctest.Wait()
				wantRanges(t, "afterwards", take(t, a, 1), allocator.Range{First: 5000, Last: 5000})
			})
		})
	}
}

// TestRegressedRestart: the marks in the file outlive the process, and the tag.
func TestRegressedRestart(t *testing.T) {
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
				s := newShared(t, 10)
				backup := s.Snapshot()
				open := func() (*allocator.Allocator, *events, func()) {
					marks, err := allocator.OpenMarks(path)
					if err != nil {
						t.Fatal(err)
					}
					var r events
					a, stop := startStop(t, allocator.Config{Store: s, Marks: marks, Notify: r.notify})
					return a, &r, stop // the marks are not closed: killed
				}
				var c allocatortest.Checker
				a, _, stop := open()
				for range 35 {
					c.Add(take(t, a, 1)...)
				}
				seen := a.Seen("order")
				stop()
				reset(s, backup)
				for range 2 {
					a, r, stop := open()
					if got := a.Seen("order"); got != seen {
						t.Errorf("Seen = %d after a restart, want %d", got, seen)
					}
					refused(t, a, 1, allocator.ErrRegressed, 0)
					r.wantEpisodes(t, "regressed", 1, 0)
					stop()
				}
				a, _, stop = open()
				s.move(seen)
				c.Add(take(t, a, 1)...)
				stop()
				unique(t, &c)
			})
		})
	}
}

// TestRegressedAndDeleted: a tag that is deleted while it is refused is unknown
// from then on; created again, it starts above, or is refused again.
func TestRegressedAndDeleted(t *testing.T) {
	for name, watched := range map[string]bool{"told": true, "untold": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newShared(t, 10)
				var r events
				cfg := allocator.Config{Store: s, Notify: r.notify, MaxStep: 1}
				if !watched {
					cfg.Store = unwatched{s}
				}
				a := start(t, cfg)
				var c allocatortest.Checker
				seen := regress(t, s, a, &c)
				refused(t, a, 1, allocator.ErrRegressed, 0)
				s.remove()
				time.Sleep(8 * time.Second)
				synctest.Wait()
				refused(t, a, 1, allocator.ErrUnknownTag, 0)
				r.wantEpisodes(t, "regressed", 1, 1)
				if a.Tags() != 0 {
					t.Errorf("%d tags are in memory", a.Tags())
				}
				s.create("order", 1, 10) // the tombstone is below what was seen
				refused(t, a, 1, allocator.ErrRegressed, 0)
				r.wantEpisodes(t, "regressed", 2, 1)
				s.remove()
				time.Sleep(8 * time.Second)
				synctest.Wait()
				s.create("order", seen, 10)
				c.Add(take(t, a, 1)...)
				unique(t, &c)
			})
		})
	}
}

// TestRegressedOver: the alert is over with the operator's word, also if nothing can be reserved yet.
func TestRegressedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared(t, 10)
		var r events
		a := start(t, allocator.Config{Store: s, Notify: r.notify, MaxStep: 1})
		regress(t, s, a, new(allocatortest.Checker))
		refused(t, a, 1, allocator.ErrRegressed, 0)
		s.away()
		s.move(1000)
		time.Sleep(time.Second)
		r.wantEpisodes(t, "regressed", 1, 1)
		r.wantEpisodes(t, "refill_failed", 1, 0)
	})
}

// TestRegressedStoreAway: that the store cannot be asked changes nothing.
func TestRegressedStoreAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared(t, 10)
		a := start(t, allocator.Config{Store: deaf{s}})
		hear(a, "order", 1000)
		refused(t, a, 1, allocator.ErrRegressed, 0)
		time.Sleep(time.Hour)
		refused(t, a, 1, allocator.ErrRegressed, 0)
		a.Apply(s.move(1000)) // told by another way
		time.Sleep(time.Second)
		wantRanges(t, "afterwards", take(t, a, 1), allocator.Range{First: 1000, Last: 1000})
	})
}

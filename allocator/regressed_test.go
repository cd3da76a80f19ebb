package allocator_test

import (
	"errors"
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
		"heard":         {true, 0},
		"asked, untold": {false, 8 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
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
			if got := published[allocator.Regressed](&r)[0]; got != (allocator.Regressed{Tag: "order", Got: regressed.Got, Seen: seen,
				Action: allocator.Refused, InDoubt: allocator.Range{First: regressed.Got, Last: seen - 1}}) {
				t.Errorf("published was %+v", got)
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
		inBubble(t, name, func(t *testing.T) {
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
			w := queued(t, a, "order", 1)
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
	}
}

// TestRegressedMemory: what was in memory before is served while the store is
// refused, until the operator says where to go on.
func TestRegressedMemory(t *testing.T) {
	for name, watched := range map[string]bool{"heard": true, "unheard": false} {
		inBubble(t, name, func(t *testing.T) {
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

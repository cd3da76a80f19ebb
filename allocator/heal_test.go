package allocator_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// TestHealing: generators that know nothing and hear nothing go on above what was claimed when the store
// goes backwards, again and again. Exactly one alert is raised each time.
func TestHealing(t *testing.T) {
	const generators = 3
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		old := c.store.Snapshot()
		var ids allocatortest.Checker
		for round := range 4 {
			var r events
			var as []*allocator.Allocator
			for range generators { // new ones, with empty folders
				view := c.twin()
				view.store.slow(5 * time.Millisecond) // all have asked before the first is answered
				as = append(as, start(t, view.config(&r)))
			}
			if round > 0 {
				c.store.Restore(old)
			}
			var callers sync.WaitGroup
			for _, a := range as {
				callers.Go(func() {
					for range 100 {
						ranges, err := a.Take(t.Context(), "order", 3)
						if err != nil {
							t.Errorf("Take: %v", err)
						}
						ids.Add(ranges...)
					}
				})
			}
			callers.Wait()
			time.Sleep(time.Second) // until no refill is under way
			n := min(round, 1)
			r.wantEpisodes(t, "regressed", n, n)
			r.wantEpisodes(t, "refill_failed", 0, 0)
			for _, e := range told[allocator.Regressed](&r) {
				if e.Action != allocator.Advanced || e.Got != 1 || e.Seen <= 1 {
					t.Errorf("the alert is %+v", e)
				}
			}
		}
		if n := unique(t, &ids); n != 4*generators*300 {
			t.Errorf("%d IDs", n)
		}
	})
}

// TestHealingInFlight: a range that one generator reserved, and that the store then forgot and returned
// to another, is claimed once, whoever claims first.
func TestHealingInFlight(t *testing.T) {
	for name, firstWins := range map[string]bool{"the first claims first": true, "the second claims first": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newClaims(t, 10)
				old := a.store.Snapshot()
				a.want(t, 1)
				b := a.twin()
				gate := make(chan struct{})
				a.store.onReserved(func(string, allocator.Range) error { <-gate; return nil })
				b.store.onReserved(func(string, allocator.Range) error {
					if firstWins {
						close(gate)
						synctest.Wait()
					}
					return nil
				})
				grants := make(chan error, 1)
				go func() {
					_, err := a.Reserve(t.Context(), "order", 10, 1)
					grants <- err
				}()
				synctest.Wait() // 11-20 is reserved
				a.store.Restore(old)
				_, err := b.Reserve(t.Context(), "order", 10, 1)
				if moved, ok := errors.AsType[*allocator.AdvancedError](err); !ok || moved.Got != 1 || moved.Seen != 11 {
					t.Fatalf("Reserve: %v, want that it was moved up", err)
				}
				_, second := b.Reserve(t.Context(), "order", 10, 1) // 11-20 again
				if !firstWins {
					close(gate)
				}
				first := <-grants
				if firstWins && (first != nil || !errors.Is(second, allocator.ErrConflict)) ||
					!firstWins && (second != nil || !errors.Is(first, allocator.ErrConflict)) {
					t.Errorf("the first one: %v; the second one: %v", first, second)
				}
				if e := a.book.entry("order"); e.End != 21 {
					t.Errorf("the record is %+v", e)
				}
			})
		})
	}
}

// TestClaimedByOperators: a new tag, a new max_id and a deletion claim all IDs below, after the store has
// them.
func TestClaimedByOperators(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		wantEntry := func(what, tag string, end, floor int64) {
			t.Helper()
			if e := c.book.entry(tag); e.End != end || e.Floor != floor {
				t.Errorf("%s: the record is %+v, want end %d and floor %d", what, e, end, floor)
			}
		}
		// The store comes first.
		var inStore []allocator.Tag
		c.book.onWrite(func(tag string, e allocator.Entry) error {
			inStore = append(inStore, c.store.Snapshot()[tag])
			return nil
		})
		if tag, err := c.Create(t.Context(), allocator.Tag{Name: "new", MaxID: 70, Step: 10}); err != nil || tag.MaxID != 70 {
			t.Errorf("Create: %+v, %v", tag, err)
		}
		wantEntry("created", "new", 70, 70)
		c.want(t, 1)
		to := int64(500)
		if tag, err := c.Update(t.Context(), "order", allocator.Change{MaxID: &to}); err != nil || tag.MaxID != 500 || tag.Floor != 500 {
			t.Errorf("Update: %+v, %v", tag, err)
		}
		wantEntry("moved", "order", 500, 500)
		c.want(t, 500)
		wantEntry("used", "order", 510, 500)
		if tomb, err := c.Delete(t.Context(), "order", 600); err != nil || tomb.MaxID != 600 || !tomb.Deleted {
			t.Errorf("Delete: %+v, %v", tomb, err)
		}
		wantEntry("deleted", "order", 600, 600)
		if len(inStore) != 5 || inStore[0].MaxID != 70 || inStore[2].MaxID != 500 || !inStore[4].Deleted {
			t.Errorf("when the ledger was written, the store had %+v", inStore)
		}
		writes := c.book.writes
		step := int64(7)
		if tag, err := c.Update(t.Context(), "new", allocator.Change{Step: &step}); err != nil || tag.Step != 7 || c.book.writes != writes {
			t.Errorf("a new step: %+v, %v; the ledger was written %d times", tag, err, c.book.writes-writes)
		}

		// Created again, also by a store that has no tombstone, it goes on above all that was claimed.
		c.store.Restore(map[string]allocator.Tag{})
		if tag, err := c.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 10}); err != nil || tag.MaxID != 600 {
			t.Errorf("Create: %+v, %v", tag, err)
		}
		wantEntry("created again", "order", 600, 600)
		if tag, err := c.Create(t.Context(), allocator.Tag{Name: "first", MaxID: 1, Step: 10}); err != nil || tag.MaxID != 1 {
			t.Errorf("Create: %+v, %v", tag, err)
		}
		wantEntry("created at 1", "first", 1, 0)
		floors := make(map[string]int64)
		if err := c.Floors(t.Context(), func(tag string, floor int64, _ allocator.Rules) { floors[tag] = floor }); err != nil || fmt.Sprint(floors) != "map[new:70 order:600]" {
			t.Errorf("the floors are %v, %v", floors, err)
		}
	})
}

// TestOperatorsAfterTheStoreWentBack: max_id is what was claimed, and no operator moves it below.
func TestOperatorsAfterTheStoreWentBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		old := c.store.Snapshot()
		for i := range int64(10) {
			c.want(t, 1+10*i)
		}
		c.store.Restore(old)
		if tag, err := c.Get(t.Context(), "order"); err != nil || tag.MaxID != 101 {
			t.Errorf("Get: %+v, %v", tag, err)
		}
		below := int64(100)
		if tag, err := c.Update(t.Context(), "order", allocator.Change{MaxID: &below}); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("Update to 100: %+v, %v", tag, err)
		}
		if got := c.store.maxID(); got != 1 {
			t.Errorf("a refused Update moved max_id to %d", got)
		}
		at := int64(101)
		if tag, err := c.Update(t.Context(), "order", allocator.Change{MaxID: &at}); err != nil || tag.MaxID != 101 {
			t.Errorf("Update to 101: %+v, %v", tag, err)
		}
		c.want(t, 101)
		c.store.Restore(old)
		if tomb, err := c.Delete(t.Context(), "order", 1); err != nil || tomb.MaxID != 111 {
			t.Errorf("Delete: %+v, %v; all below 111 is claimed", tomb, err)
		}
		if _, err := c.Delete(t.Context(), "order", 1); !errors.Is(err, allocator.ErrUnknownTag) {
			t.Errorf("a second Delete: %v", err)
		}
		if tag, err := c.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 10}); err != nil || tag.MaxID != 111 {
			t.Errorf("Create: %+v, %v", tag, err)
		}
		if tag, err := c.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 10}); !errors.Is(err, allocator.ErrExists) {
			t.Errorf("a second Create: %+v, %v", tag, err)
		}
		if _, err := c.Update(t.Context(), "nobody", allocator.Change{MaxID: &at}); !errors.Is(err, allocator.ErrUnknownTag) {
			t.Errorf("Update of no tag: %v", err)
		}
		if e := c.book.entry("nobody"); e.Revision > 0 {
			t.Errorf("no tag has the record %+v", e)
		}
	})
}

// TestOperatorsUncertain: a change that the store has and the ledger may not have must be repeated.
// Repeating it is safe.
func TestOperatorsUncertain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		c.want(t, 1)
		fail := func(string, allocator.Entry) error { return errLedger }
		to := int64(500)
		for what, change := range map[string]func() (allocator.Tag, error){
			"Create": func() (allocator.Tag, error) {
				return c.Create(t.Context(), allocator.Tag{Name: "new", MaxID: 7, Step: 10})
			},
			"Update": func() (allocator.Tag, error) {
				return c.Update(t.Context(), "order", allocator.Change{MaxID: &to})
			},
		} {
			c.book.onWrite(fail)
			if _, err := change(); !errors.Is(err, allocator.ErrUncertain) || !errors.Is(err, errLedger) {
				t.Errorf("%s: %v, want that it may have happened", what, err)
			}
			c.book.onWrite(nil)
			if _, err := change(); err != nil && !errors.Is(err, allocator.ErrExists) {
				t.Errorf("%s again: %v", what, err)
			}
		}
		if e := c.book.entry("order"); e.End != 500 || e.Floor != 500 {
			t.Errorf("the record is %+v", e)
		}
		c.want(t, 500)
		c.book.onWrite(fail)
		if _, err := c.Delete(t.Context(), "order", 1); !errors.Is(err, allocator.ErrUncertain) {
			t.Errorf("Delete: %v, want that it may have happened", err)
		}
	})
}

// TestOperatorSendsItAgain: a max_id that only the store has is in force after it was sent again, though
// another generator has claimed a range above it meanwhile. Generators that were cut off must learn of it.
func TestOperatorSendsItAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		c.want(t, 1)
		to, step := int64(500), int64(20)
		change := allocator.Change{MaxID: &to, Step: &step}
		c.book.onWrite(func(string, allocator.Entry) error { return errLedger })
		if _, err := c.Update(t.Context(), "order", change); !errors.Is(err, allocator.ErrUncertain) {
			t.Errorf("Update: %v", err)
		}
		c.book.onWrite(nil)
		other := c.twin()
		other.want(t, 500)
		another := int64(505)
		if tag, err := c.Update(t.Context(), "order", allocator.Change{MaxID: &another}); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("another max_id below what was claimed: %+v, %v", tag, err)
		}
		if tag, err := c.Update(t.Context(), "order", change); err != nil || tag.Floor != 500 || tag.MaxID != 520 || tag.Step != 20 {
			t.Errorf("Update again: %+v, %v", tag, err)
		}
		floors := make(map[string]int64)
		if err := other.Floors(t.Context(), func(tag string, floor int64, _ allocator.Rules) { floors[tag] = floor }); err != nil || floors["order"] != 500 {
			t.Errorf("Floors: %v, %v", floors, err)
		}
		if tag, err := c.Update(t.Context(), "order", change); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("once more: %+v, %v", tag, err)
		}
		below := int64(499)
		if tag, err := c.Update(t.Context(), "order", allocator.Change{MaxID: &below}); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("below it: %+v, %v", tag, err)
		}
		other.want(t, 520)
	})
}

// TestRaise: a record is only ever raised, one that is high enough is not written, and one that is
// missing is made.
func TestRaise(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &book{MemoryLedger: allocatortest.NewMemoryLedger(), tb: t}
		for i, c := range []struct {
			end, floor int64
			changed    bool
			want       allocator.Entry
		}{
			{0, 0, true, allocator.Entry{Revision: 1}},
			{0, 0, false, allocator.Entry{Revision: 1}},
			{50, 5, true, allocator.Entry{End: 50, Floor: 5, Revision: 2}},
			{50, 5, false, allocator.Entry{End: 50, Floor: 5, Revision: 2}},
			{40, 4, false, allocator.Entry{End: 50, Floor: 5, Revision: 2}},
			{40, 6, true, allocator.Entry{End: 50, Floor: 6, Revision: 3}},
			{60, 1, true, allocator.Entry{End: 60, Floor: 6, Revision: 4}},
		} {
			if changed, err := allocator.Raise(t.Context(), b, "order", c.end, c.floor); changed != c.changed || err != nil {
				t.Errorf("step %d: %v, %v", i, changed, err)
			}
			if e := b.entry("order"); e != c.want {
				t.Errorf("step %d: the record is %+v, want %+v", i, e, c.want)
			}
		}
		conflicts := 5
		b.onWrite(func(string, allocator.Entry) error {
			if conflicts--; conflicts < 0 {
				return nil
			}
			b.raise(b.entry("order").End+1, 0)
			return nil
		})
		if changed, err := allocator.Raise(t.Context(), b, "order", 1000, 1000); !changed || err != nil {
			t.Errorf("after conflicts: %v, %v", changed, err)
		}
		b.onWrite(func(string, allocator.Entry) error { return errLedger })
		writes := b.writes
		if changed, err := allocator.Raise(t.Context(), b, "order", 2000, 0); changed || !errors.Is(err, errLedger) || b.writes != writes+1 {
			t.Errorf("an uncertain write: %v, %v, %d writes", changed, err, b.writes-writes)
		}
		b.onRead(errLedger)
		if changed, err := allocator.Raise(t.Context(), b, "order", 1, 0); changed || !errors.Is(err, errLedger) {
			t.Errorf("without the record: %v, %v", changed, err)
		}
	})
}

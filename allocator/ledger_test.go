package allocator_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// TestLedgerAway: while the ledger is unavailable, nothing is reserved or changed, and what is in memory
// is served.
func TestLedgerAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		var r events
		a := start(t, c.config(&r))
		take(t, a, 1)
		time.Sleep(2 * time.Second)
		c.book.onRead(errLedger)
		calls, record := len(c.store.reserves()), c.store.Snapshot()["order"]
		take(t, a, 9)
		err := refused(t, a, 20, allocator.ErrUnavailable, 3*time.Second)
		if !errors.Is(err, errLedger) {
			t.Errorf("Take: %v", err)
		}
		to := int64(5000)
		for what, change := range map[string]func() error{
			"Create": func() error {
				_, err := c.Create(t.Context(), allocator.Tag{Name: "other", MaxID: 1, Step: 1})
				return err
			},
			"Update": func() error { _, err := c.Update(t.Context(), "order", allocator.Change{MaxID: &to}); return err },
			"Delete": func() error { _, err := c.Delete(t.Context(), "order", 1); return err },
			"Get":    func() error { _, err := c.Get(t.Context(), "order"); return err },
		} {
			if err := change(); !errors.Is(err, errLedger) || errors.Is(err, allocator.ErrUncertain) {
				t.Errorf("%s: %v, want that nothing was done", what, err)
			}
		}
		if now := c.store.Snapshot(); len(now) != 1 || now["order"] != record || len(c.store.reserves()) != calls {
			t.Errorf("the store has %+v, and %d ranges were reserved", now, len(c.store.reserves())-calls)
		}
		c.book.onRead(nil)
		time.Sleep(time.Second)
		take(t, a, 20)
		r.wantEpisodes(t, "refill_failed", 1, 1)
	})
}

// TestLedgerDamaged: a record that cannot be read is refused at once. It is its tag's own trouble.
func TestLedgerDamaged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		c.book.onRead(fmt.Errorf("%w: its end is -5", allocator.ErrDamaged))
		a := start(t, c.config(new(events)))
		refused(t, a, 1, allocator.ErrDamaged, 0)
		if f := a.Failing(); f.Tags != 1 || f.Store != nil || len(c.store.reserves()) > 0 {
			t.Errorf("Failing() = %+v, %d ranges were reserved", f, len(c.store.reserves()))
		}
		for range 2 { // at the same moment: nothing was learned from the first reading
			if g, err := c.Reserve(t.Context(), "order", 1, 1); !errors.Is(err, allocator.ErrDamaged) {
				t.Errorf("Reserve: %v, %v", g.Range, err)
			}
		}
	})
}

// TestLedgerRestored: what a generator handed out, and what peers reported, count also if the ledger and
// the store forget it.
func TestLedgerRestored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		var r events
		a := start(t, c.config(&r))
		store, ledger := c.store.Snapshot(), c.book.Snapshot()
		var ids allocatortest.Checker
		for range 50 {
			ids.Add(take(t, a, 1)...)
		}
		synctest.Wait()
		c.store.Restore(store)
		c.book.Restore(ledger)
		time.Sleep(2 * time.Second) // until what was read before is not fresh
		for range 500 {
			ids.Add(take(t, a, 1)...)
		}
		unique(t, &ids)
		r.wantEpisodes(t, "regressed", 1, 1)
		if e := c.book.entry("order"); e.End != c.store.maxID() {
			t.Errorf("the record is %+v, max_id %d", e, c.store.maxID())
		}
	})
}

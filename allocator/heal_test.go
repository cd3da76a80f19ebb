package allocator_test

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

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
		if e := c.book.entry("order"); e.End != 101 || e.Floor != 101 {
			t.Errorf("after an operator moved max_id to 101 the record is %+v", e)
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
		tomb, err := c.Delete(t.Context(), "order", 600)
		if e := c.book.entry("order"); err != nil || tomb.MaxID != 600 || e.End != 600 || e.Floor != 600 {
			t.Errorf("Delete of what was used up to 600: %+v, %v; the record is %+v", tomb, err, e)
		}
		c.store.Restore(map[string]allocator.Tag{}) // it has lost the tombstone too
		if tag, err := c.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 10}); err != nil || tag.MaxID != 600 {
			t.Errorf("Create: %+v, %v; all below 600 is claimed", tag, err)
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

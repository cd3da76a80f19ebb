package allocator_test

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// TestTransitions: what each transition of a record refuses.
func TestTransitions(t *testing.T) {
	at := func(revision uint64, f func(*allocator.Tag)) allocator.Stored {
		s := allocator.Stored{Tag: allocator.Tag{Name: "order", MaxID: 11, Step: 10}, Revision: revision}
		f(&s.Tag)
		return s
	}
	below := int64(10)
	for name, c := range map[string]struct {
		of                            allocator.Stored
		claim, create, change, remove error // nil: it is allowed
	}{
		"there": {of: at(1, func(*allocator.Tag) {}), create: allocator.ErrExists},
		"none": {of: at(0, func(t *allocator.Tag) { *t = allocator.Tag{} }),
			claim: allocator.ErrUnknownTag, change: allocator.ErrUnknownTag, remove: allocator.ErrUnknownTag},
		"deleted": {of: at(1, func(t *allocator.Tag) { t.Deleted = true }),
			claim: allocator.ErrDeleted, change: allocator.ErrDeleted, remove: allocator.ErrDeleted},
		"strict, and deleted": {of: at(1, func(t *allocator.Tag) { t.Order, t.Step, t.Deleted = strict, 0, true }),
			claim: allocator.ErrDeleted, create: allocator.ErrConflict, change: allocator.ErrDeleted, remove: allocator.ErrDeleted},
		"strict":          {of: at(1, func(t *allocator.Tag) { t.Order, t.Step = strict, 0 }), create: allocator.ErrConflict},
		"paused":          {of: at(1, func(t *allocator.Tag) { t.Paused = true }), claim: allocator.ErrPaused, create: allocator.ErrExists},
		"at its limit":    {of: at(1, func(t *allocator.Tag) { t.Limit = 10 }), claim: allocator.ErrExhausted, create: allocator.ErrExists},
		"below its limit": {of: at(1, func(t *allocator.Tag) { t.Limit = 11 }), create: allocator.ErrExists},
	} {
		for what, x := range map[string]struct {
			do   func() (allocator.Tag, error)
			want error
		}{
			"Claim":  {func() (allocator.Tag, error) { return c.of.Claim(allocator.Claim{First: 11, Last: 20}) }, c.claim},
			"Create": {func() (allocator.Tag, error) { return c.of.Create(allocator.Tag{Name: "order", Step: 10}, 0) }, c.create},
			"Change": {func() (allocator.Tag, error) { return c.of.Change(allocator.Change{Description: new(string)}) }, c.change},
			"Delete": {func() (allocator.Tag, error) { return c.of.Delete(0) }, c.remove},
		} {
			if got, err := x.do(); !errors.Is(err, x.want) || err != nil && what != "Create" && got != c.of.Tag {
				t.Errorf("%s of a record that is %s: %+v, %v; want %v", what, name, got, err, x.want)
			}
		}
	}
	s := at(1, func(*allocator.Tag) {})
	if got, err := s.Claim(allocator.Claim{First: 10, Last: 20}); !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("a claim of what is claimed: %+v, %v", got, err)
	}
	if got, err := s.Change(allocator.Change{MaxID: &below}); !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("max_id moved back: %+v, %v", got, err)
	}
}

// TestEnds: how far the record is after each transition, and below which ID nothing in memory counts.
func TestEnds(t *testing.T) {
	s := allocator.Stored{Tag: allocator.Tag{Name: "order", MaxID: 11, Step: 10, Floor: 3, Rules: allocator.Rules{Limit: 25}}, Revision: 1}
	s.Last.Run = "before"
	to := int64(12)
	for name, c := range map[string]struct {
		do                func() (allocator.Tag, error)
		end, floor, below int64
	}{
		"a claim":                  {func() (allocator.Tag, error) { return s.Claim(allocator.Claim{First: 11, Last: 20}) }, 21, 3, 3},
		"a claim beyond the limit": {func() (allocator.Tag, error) { return s.Claim(allocator.Claim{First: 21, Last: 30}) }, 26, 3, 3},
		"a change":                 {func() (allocator.Tag, error) { return s.Change(allocator.Change{Step: &to}) }, 11, 3, 3},
		"a new max_id":             {func() (allocator.Tag, error) { return s.Change(allocator.Change{MaxID: &to}) }, 12, 12, 12},
		"a deletion":               {func() (allocator.Tag, error) { return s.Delete(0) }, 11, 3, 11},
		"a deletion below a mark":  {func() (allocator.Tag, error) { return s.Delete(50) }, 50, 3, 50},
		"a rise":                   {func() (allocator.Tag, error) { return s.Rise(20, 15), nil }, 20, 15, 15},
		"a rise by a floor":        {func() (allocator.Tag, error) { return s.Rise(0, 15), nil }, 15, 15, 15},
		"a rise to less":           {func() (allocator.Tag, error) { return s.Rise(10, 2), nil }, 11, 3, 3},
	} {
		got, err := c.do()
		if err != nil || got.MaxID != c.end || got.Floor != c.floor || got.Below() != c.below {
			t.Errorf("%s: %+v, %v; want the end %d, the floor %d, all below %d dropped", name, got, err, c.end, c.floor, c.below)
		}
	}
	tomb := allocator.Stored{Tag: s.Tag, Revision: 2}
	tomb.Deleted, tomb.Version = true, 7
	for _, c := range []struct {
		of              allocator.Stored
		max, known, end int64
		floor           int64
	}{{of: allocator.Stored{}, end: 1}, {of: allocator.Stored{}, max: 5, end: 5, floor: 5}, {of: allocator.Stored{}, known: 9, end: 9, floor: 9},
		{of: tomb, end: 11, floor: 11}, {of: tomb, max: 50, end: 50, floor: 50}, {of: tomb, known: 60, max: 50, end: 60, floor: 60}} {
		got, err := c.of.Create(allocator.Tag{Name: "order", Step: 10, MaxID: c.max}, c.known)
		if err != nil || got.MaxID != c.end || got.Floor != c.floor || got.Deleted || got.Limit != 0 || got.Last != c.of.Last {
			t.Errorf("%+v is created as %+v, %v", c, got, err)
		}
		if c.of.Revision != 0 && got.Version != 8 { // generators may remember the old rules
			t.Errorf("the rules are %+v", got.Rules)
		}
	}
}

// TestKnownMerge: of what two generators know the higher of each counts.
func TestKnownMerge(t *testing.T) {
	one := allocator.Known{End: 10, Floor: 7, Rules: allocator.Rules{Version: 2, Limit: 5}}
	two := allocator.Known{End: 9, Floor: 8, Rules: allocator.Rules{Version: 3}}
	want := allocator.Known{End: 10, Floor: 8, Rules: two.Rules}
	if one.Merge(two) != want || two.Merge(one) != want {
		t.Errorf("%+v and %+v", one.Merge(two), two.Merge(one))
	}
}

// TestNewerFormat: a record of a newer format may forbid what is in memory. Another generator may send it before the
// watch does.
func TestNewerFormat(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		w := newWorld(t)
		w.numbers = nil
		w.make(allocator.Tag{Name: "order"})
		g := w.join("one")
		g.wantIDs("order", 1, 1)
		s := w.record("order")
		s.Format = allocator.RecordFormat + 1
		s.Revision++
		w.records.Spoil("order", allocator.ErrNewer)
		g.Push(s)
		if _, err := g.Take(t.Context(), "order", 1); !errors.Is(err, allocator.ErrNewer) {
			t.Errorf("Take: %v, want %v", err, allocator.ErrNewer)
		}
	})
}

package allocatortest

import (
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

func deleteAndCreate(tb testing.TB, b Backend) {
	s := b.Open(tb)
	create(tb, s, "order", 1, 10)
	a := running(tb, allocator.Config{Store: b.Open(tb)})
	var c Checker
	for range 25 {
		takeOne(tb, a, &c)
	}
	mark := a.Seen("order") // its refill may be at work still
	tomb, err := s.Delete(within(tb), "order", 1)
	if err != nil || !tomb.Deleted || tomb.MaxID < mark {
		tb.Fatalf("Delete: %+v, %v; want a tombstone at %d or above", tomb, err, mark)
	}
	a.Apply(tomb)
	_, err = a.Take(within(tb), "order", 1)
	wantError(tb, "Take of a deleted tag", err, allocator.ErrUnknownTag)
	if tags, err := s.List(within(tb), allocator.Query{Limit: 10}); err != nil || len(tags) != 0 {
		tb.Errorf("List after Delete: %v, %v", tags, err)
	}
	again := create(tb, b.Open(tb), "order", 1, 10)
	if again.MaxID < tomb.MaxID || again.Deleted {
		tb.Errorf("created again: %+v, want max_id at %d or above", again, tomb.MaxID)
	}
	a.Apply(again)
	for range 25 {
		takeOne(tb, a, &c)
	}
	wantUnique(tb, &c)
}

func maxIDMoved(tb testing.TB, b Backend) {
	s := b.Open(tb)
	create(tb, s, "order", 1, 1000)
	var as []*allocator.Allocator
	for range 2 {
		a := running(tb, allocator.Config{Store: b.Open(tb)})
		if _, err := a.Take(within(tb), "order", 300); err != nil { // and the next segment is on its way
			tb.Fatalf("Take: %v", err)
		}
		as = append(as, a)
	}
	to := int64(1_000_000)
	moved, err := b.Open(tb).Update(within(tb), "order", allocator.Change{MaxID: &to})
	if err != nil || moved.MaxID != to || moved.Floor != to {
		tb.Fatalf("Update: %+v, %v", moved, err)
	}
	for _, a := range as {
		a.Apply(moved)
		ranges, err := a.Take(within(tb), "order", 5)
		if err != nil || ranges[0].First < to {
			tb.Errorf("after max_id was moved to %d: %v, %v", to, ranges, err)
		}
	}
}

func maxIDBackwards(tb testing.TB, b Backend) {
	s := b.Open(tb)
	create(tb, s, "order", 1, 10)
	reserve(tb, s, "order", 1)
	back := int64(10)
	_, err := s.Update(within(tb), "order", allocator.Change{MaxID: &back})
	wantError(tb, "Update", err, allocator.ErrConflict)
	if g := reserve(tb, s, "order", 1); g.First != 11 {
		tb.Errorf("after a refused Update the next range is %v", g.Range)
	}
}

func stepChanged(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	create(tb, s, "order", 1, 10)
	reserve(tb, s, "order", 1)
	reserve(tb, other, "order", 1)
	step, text := int64(500), "täglich"
	t, err := s.Update(within(tb), "order", allocator.Change{Step: &step, Description: &text})
	if err != nil || t.Step != step || t.Description != text || t.MaxID != 21 {
		tb.Errorf("Update: %+v, %v", t, err)
	}
	if g := reserve(tb, s, "order", 1); g.Range != (allocator.Range{First: 21, Last: 520}) || g.Step != step {
		tb.Errorf("after the step was set to 500: %+v", g)
	}
}

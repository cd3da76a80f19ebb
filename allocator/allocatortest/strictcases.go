package allocatortest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// strictCases are about strict tags. A store that keeps none must refuse them.
func strictCases() []Case {
	cases := []Case{
		{"StrictRanges", strictRanges},
		{"StrictForLife", strictForLife},
		{"StrictChanges", strictChanges},
		{"StrictRaised", strictRaised},
		{"StrictDeleteAndCreate", strictDeleteAndCreate},
		{"StrictStaleHandle", strictStaleHandle},
		{"StrictManyHandles", strictManyHandles},
		{"StrictLostAnswers", strictLostAnswers},
		{"StrictExhausted", strictExhausted},
	}
	for i, c := range cases {
		cases[i].Run = func(tb testing.TB, b Backend) {
			if b.Strict {
				c.Run(tb, b)
				return
			}
			_, err := b.Open(tb).Create(within(tb), strictTag("order"))
			wantError(tb, "Create of a strict tag in a store that keeps none", err, allocator.ErrBadValue)
		}
	}
	return cases
}

func strictTag(name string) allocator.Tag {
	return allocator.Tag{Name: name, MaxID: 1, Order: allocator.Strict}
}

func createStrict(tb testing.TB, s allocator.Store) allocator.Tag {
	tb.Helper()
	t, err := s.Create(within(tb), strictTag("order"))
	if err != nil {
		tb.Fatalf("Create: %v", err)
	}
	return t
}

// wantTaken reserves n IDs, which must begin at first.
func wantTaken(tb testing.TB, s allocator.Store, n, first int64) {
	tb.Helper()
	want := allocator.Grant{Range: allocator.Range{First: first, Last: first + n - 1}, Step: 1, Order: allocator.Strict}
	if g := reserve(tb, s, "order", n); g != want {
		tb.Errorf("Reserve(%d) = %+v, want %+v", n, g, want)
	}
}

// wantMaxID checks the record of the strict tag.
func wantMaxID(tb testing.TB, s allocator.Store, maxID int64) {
	tb.Helper()
	if t, err := s.Get(within(tb), "order"); err != nil || t.MaxID != maxID || t.Order != allocator.Strict || t.Step != 0 {
		tb.Errorf("the record is %+v, %v; want a strict tag at %d", t, err, maxID)
	}
}

// strictRanges: exactly n IDs are taken, and none with n = 0.
func strictRanges(tb testing.TB, b Backend) {
	s := b.Open(tb)
	if t := createStrict(tb, s); t.Order != allocator.Strict || t.MaxID != 1 || t.Step != 0 {
		tb.Errorf("Create returned %+v", t)
	}
	wantMaxID(tb, s, 1)
	wantTaken(tb, s, 1, 1)
	wantTaken(tb, s, 250, 2)
	for range 2 {
		if _, err := s.Reserve(within(tb), "order", 0, 1); err != nil {
			tb.Errorf("Reserve(0): %v", err)
		}
	}
	wantMaxID(tb, b.Open(tb), 252)
	wantTaken(tb, b.Open(tb), 1, 252)
	_, err := s.Reserve(within(tb), "nobody", 0, 1)
	wantError(tb, "Reserve(0) of a tag that does not exist", err, allocator.ErrUnknownTag)
	create(tb, s, "trend", 1, 10)
	tags, err := s.List(within(tb), allocator.Query{Limit: 10})
	if err != nil || len(tags) != 2 || tags[0].Order != allocator.Strict || tags[0].MaxID != 253 || tags[1].Order != allocator.Trend {
		tb.Errorf("List: %+v, %v", tags, err)
	}
	if g := reserve(tb, s, "trend", 1); g.Order != allocator.Trend || g.Len() != 10 {
		tb.Errorf("Reserve of a tag of trend order: %+v", g)
	}
}

// strictForLife: a name keeps its order, whether the tag is there or was deleted.
func strictForLife(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	createStrict(tb, s)
	create(tb, s, "trend", 1, 10)
	wantTaken(tb, s, 3, 1)
	_, err := other.Create(within(tb), strictTag("order"))
	wantError(tb, "Create of a strict tag that is there", err, allocator.ErrExists)
	for _, what := range []string{"is there", "was deleted"} {
		_, err = other.Create(within(tb), allocator.Tag{Name: "order", MaxID: 1, Step: 10})
		wantError(tb, "Create in trend order of a strict tag that "+what, err, allocator.ErrConflict)
		_, err = other.Create(within(tb), strictTag("trend"))
		wantError(tb, "Create in strict order of a tag of trend order that "+what, err, allocator.ErrConflict)
		if what == "is there" {
			wantMaxID(tb, s, 4)
		}
		for _, tag := range []string{"order", "trend"} {
			if _, err = s.Delete(within(tb), tag, 1); err != nil && what == "is there" {
				tb.Errorf("Delete(%s): %v", tag, err)
			}
		}
	}
	createStrict(tb, other)
	create(tb, other, "trend", 1, 10)
	wantTaken(tb, other, 1, 4)
}

// strictChanges: a strict tag has no step. A new max_id is a floor.
func strictChanges(tb testing.TB, b Backend) {
	s := b.Open(tb)
	createStrict(tb, s)
	wantTaken(tb, s, 5, 1)
	step, back, to, text := int64(10), int64(5), int64(1000), "invoices"
	_, err := s.Update(within(tb), "order", allocator.Change{Step: &step})
	wantError(tb, "Update of the step", err, allocator.ErrBadValue)
	_, err = s.Update(within(tb), "order", allocator.Change{MaxID: &back})
	wantError(tb, "Update of max_id backwards", err, allocator.ErrConflict)
	wantMaxID(tb, s, 6)
	if t, err := b.Open(tb).Update(within(tb), "order", allocator.Change{MaxID: &to, Description: &text}); err != nil ||
		t.MaxID != to || t.Floor != to || t.Description != text || t.Order != allocator.Strict {
		tb.Errorf("Update: %+v, %v", t, err)
	}
	wantTaken(tb, s, 2, to)
	floors := make(map[string]int64)
	if err := s.Floors(within(tb), func(tag string, floor int64, _ allocator.Rules) { floors[tag] = max(floors[tag], floor) }); err != nil || floors["order"] != to {
		tb.Errorf("Floors: %v, %v", floors, err)
	}
}

// strictRaised: a store that went backwards is moved up once, and nothing is taken by that.
func strictRaised(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	createStrict(tb, s)
	wantTaken(tb, s, 10, 1)
	_, err := s.Reserve(within(tb), "order", 1, 501)
	if moved, ok := errors.AsType[*allocator.AdvancedError](err); !ok || *moved != (allocator.AdvancedError{Tag: "order", Got: 11, Seen: 501}) {
		tb.Errorf("Reserve from 501 where max_id is 11: error %v, want that it was moved up", err)
	}
	wantTaken(tb, other, 1, 501)
	wantTaken(tb, s, 1, 502)
}

// strictDeleteAndCreate: a tag that is made again goes on above all that was reserved before.
func strictDeleteAndCreate(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	createStrict(tb, s)
	wantTaken(tb, other, 7, 1)
	tomb, err := s.Delete(within(tb), "order", 1)
	if err != nil || !tomb.Deleted || tomb.MaxID < 8 {
		tb.Fatalf("Delete: %+v, %v", tomb, err)
	}
	for _, n := range []int64{0, 1} {
		_, err = insist(within(tb), other, "order", n)
		wantError(tb, "Reserve of a deleted tag", err, allocator.ErrUnknownTag)
	}
	if t := createStrict(tb, other); t.MaxID != tomb.MaxID || t.Floor != tomb.MaxID {
		tb.Errorf("created again: %+v; the deletion left %d", t, tomb.MaxID)
	}
	wantTaken(tb, s, 1, tomb.MaxID)
}

// strictStaleHandle: a handle that does not know of the last change takes nothing, or what is right now.
func strictStaleHandle(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	createStrict(tb, s)
	next := int64(1)
	for range 5 {
		wantTaken(tb, s, 1, next)
		wantTaken(tb, other, 3, next+1)
		next += 4
		g, err := s.Reserve(within(tb), "order", 2, 1)
		if _, overtaken := errors.AsType[*allocator.OvertakenError](err); overtaken && errors.Is(err, allocator.ErrConflict) {
			wantMaxID(tb, s, next)
			continue
		}
		if err != nil || g.First != next || g.Len() != 2 {
			tb.Errorf("Reserve by a stale handle: %v, %v; want it from %d, or an OvertakenError", g.Range, err, next)
		}
		next += 2
	}
}

// strictManyHandles: what many handles take at once leaves no gap, because a conflict takes nothing.
func strictManyHandles(tb testing.TB, b Backend) {
	const handles, each = 8, 25
	first := b.Open(tb)
	createStrict(tb, first)
	var h History
	var wg sync.WaitGroup
	for i := range handles {
		s := b.Open(tb)
		wg.Go(func() {
			for j := range each {
				called := time.Now()
				g, err := insist(within(tb), s, "order", int64(1+(i+j)%20))
				if err != nil {
					tb.Errorf("Reserve: %v", err)
					return
				}
				h.Add(called, time.Now(), g.Range)
			}
		})
	}
	wg.Wait()
	if _, err := h.Check(); err != nil {
		tb.Errorf("%v", err)
	}
	wantMaxID(tb, first, h.IDs()+1)
}

// strictLostAnswers runs allocators whose writes fail: not done, and done although they failed.
func strictLostAnswers(tb testing.TB, b Backend) {
	random := Seed(tb)
	createStrict(tb, b.Open(tb))
	var h History
	var wg sync.WaitGroup
	for range 3 {
		seed := random.Uint64()
		faults := rand.New(rand.NewPCG(seed, seed))
		s := NewFaulty(b.Open(tb), func() Fault { return Fault(faults.IntN(8)) }) // 3 to 7: none
		a := running(tb, allocator.Config{Store: s, MaxWait: timeout})
		ctx := within(tb)
		for range 3 {
			wg.Go(func() { takeStrict(ctx, tb, a, &h) })
		}
	}
	wg.Wait()
	if _, err := h.Check(); err != nil {
		tb.Errorf("%v", err)
	}
}

func takeStrict(ctx context.Context, tb testing.TB, a *allocator.Allocator, h *History) {
	for i := range 15 {
		called := time.Now()
		ranges, err := a.Take(ctx, "order", int64(1+i%7))
		if err != nil {
			tb.Errorf("Take: %v", err)
			return
		}
		h.Add(called, time.Now(), ranges...)
	}
}

// strictExhausted: the last IDs are taken, and never more.
func strictExhausted(tb testing.TB, b Backend) {
	s := b.Open(tb)
	tag := strictTag("order")
	tag.MaxID = math.MaxInt64 - 5
	if _, err := s.Create(within(tb), tag); err != nil {
		tb.Fatalf("Create: %v", err)
	}
	_, err := s.Reserve(within(tb), "order", 6, 1)
	wantError(tb, "Reserve of 6 when 5 are left", err, allocator.ErrExhausted)
	wantTaken(tb, s, 5, math.MaxInt64-5)
	_, err = s.Reserve(within(tb), "order", 1, 1)
	wantError(tb, "Reserve at the end", err, allocator.ErrExhausted)
	if _, err := s.Reserve(within(tb), "order", 0, 1); err != nil {
		tb.Errorf("Reserve(0) at the end: %v", err)
	}
	wantMaxID(tb, s, math.MaxInt64)
}

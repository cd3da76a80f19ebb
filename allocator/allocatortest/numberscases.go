package allocatortest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// numbersFirstRange: at least the step, at least n, and never an ID twice.
func numbersFirstRange(tb testing.TB, b NumbersBackend) {
	one, other := b.Open(tb), b.Open(tb)
	add(tb, one, "order", 1, 100)
	wantAdvance(tb, one, "order", 1, 1, allocator.Range{First: 1, Last: 100}, 100)
	wantAdvance(tb, other, "order", 100, 1, allocator.Range{First: 101, Last: 200}, 100)
	wantAdvance(tb, one, "order", 250, 1, allocator.Range{First: 201, Last: 450}, 100)
	wantRow(tb, other, allocator.Row{Name: "order", MaxID: 451, Step: 100, Description: "of order"})
	add(tb, one, "old", 70_001, 10)
	wantAdvance(tb, one, "old", 1, 1, allocator.Range{First: 70_001, Last: 70_010}, 10)
	if err := one.Check(within(tb)); err != nil || one.Err() != nil {
		tb.Errorf("Check: %v, and Err: %v", err, one.Err())
	}
}

func numbersUnknownTag(tb testing.TB, b NumbersBackend) {
	n := b.Open(tb)
	_, _, err := n.Advance(within(tb), "nobody", 1, 1, 1)
	wantError(tb, "Advance", err, allocator.ErrUnknownTag)
	wantError(tb, "Raise", n.Raise(within(tb), "nobody", 10, nil, nil), allocator.ErrUnknownTag)
	wantRow(tb, n, allocator.Row{Name: "nobody"})
	if err := n.Rows(within(tb), func(r allocator.Row) {
		tb.Errorf("Rows: %+v; asking must not create", r)
	}); err != nil {
		tb.Errorf("Rows: %v", err)
	}
	// A mark is no row.
	if err := n.Mark(within(tb), "nobody", 500, allocator.KindStrict); err != nil {
		tb.Errorf("Mark: %v", err)
	}
	_, _, err = n.Advance(within(tb), "nobody", 1, 1, 1)
	wantError(tb, "Advance of a name that has a mark and no row", err, allocator.ErrUnknownTag)
	wantError(tb, "Raise of a name that has a mark and no row", n.Raise(within(tb), "nobody", 10, nil, nil),
		allocator.ErrUnknownTag)
}

// numbersNamesByCase: names are compared byte by byte. A database that takes two of them for the
// same refuses the second.
func numbersNamesByCase(tb testing.TB, b NumbersBackend) {
	n := b.Open(tb)
	names := []string{"order", "Order", "ORDER", "order.eu", "order/eu", "order=1", "order-", "_order"}
	there := make(map[string]bool)
	for i, name := range names {
		switch err := n.Add(within(tb), allocator.Row{Name: name, MaxID: int64(i)*1000 + 1, Step: 10}); {
		case err == nil:
			there[name] = true
		case !errors.Is(err, allocator.ErrExists) || i == 0 || i > 2:
			tb.Errorf("Add(%s): %v", name, err)
		}
	}
	for i, name := range names {
		first := int64(i)*1000 + 1
		if there[name] {
			wantAdvance(tb, n, name, 1, 1, allocator.Range{First: first, Last: first + 9}, 10)
			continue
		}
		_, _, err := n.Advance(within(tb), name, 1, 1, 1)
		wantError(tb, "Advance of "+name+", where another row is taken for the same", err, allocator.ErrUnknownTag)
		wantError(tb, "Raise of "+name, n.Raise(within(tb), name, 9_000_000, nil, nil), allocator.ErrUnknownTag)
		wantRow(tb, n, allocator.Row{Name: name})
		if err := n.Remove(within(tb), name, 0, allocator.KindTrend); err != nil {
			tb.Errorf("Remove(%s): %v", name, err)
		}
	}
	for i, name := range names {
		if r, err := n.Peek(within(tb), name); there[name] &&
			(err != nil || r.Name != name || r.MaxID != int64(i)*1000+11) {
			tb.Errorf("Peek(%s) = %+v, %v; want max_id %d", name, r, err, i*1000+11)
		}
	}
}

// numbersManyHandles: the ranges of handles that ask at once have no ID in common, and leave no
// gap.
func numbersManyHandles(tb testing.TB, b NumbersBackend) {
	const handles, each = 8, 40
	first := b.Open(tb)
	add(tb, first, "order", 1, 7)
	var c Checker
	var wg sync.WaitGroup
	for i := range handles {
		n, ctx := b.Open(tb), within(tb)
		wg.Go(func() {
			last := int64(0)
			for j := range each {
				r, _, err := insisted(ctx, n, "order", int64(1+(i+j)%20), last+1)
				if err != nil || r.First <= last {
					tb.Errorf("Advance after %d: %v, %v", last, r, err)
					return
				}
				last = r.Last
				c.Add(r)
			}
		})
	}
	wg.Wait()
	ids, err := c.Check()
	if err != nil {
		tb.Errorf("%v", err)
	}
	wantRow(tb, first, allocator.Row{Name: "order", MaxID: ids + 1, Step: 7, Description: "of order"})
}

// numbersFrom: from above the row moves it up once, and then ranges begin there.
func numbersFrom(tb testing.TB, b NumbersBackend) {
	one, other := b.Open(tb), b.Open(tb)
	add(tb, one, "order", 1, 10)
	wantAdvance(tb, one, "order", 1, 1, allocator.Range{First: 1, Last: 10}, 10)
	_, _, err := insisted(within(tb), one, "order", 1, 501)
	if moved, ok := errors.AsType[*allocator.AdvancedError](err); !ok ||
		*moved != (allocator.AdvancedError{Tag: "order", Got: 11, Seen: 501}) {
		tb.Fatalf("Advance from 501 where max_id is 11: error %v, want that it was moved up", err)
	}
	first, _, err := insisted(within(tb), other, "order", 1, 501)
	if err != nil || first.First < 501 || first.Len() != 10 {
		tb.Errorf("Advance after max_id was moved up: %v, %v; want 10 IDs from 501 or above", first, err)
	}
	next := allocator.Range{First: first.Last + 1, Last: first.Last + 10}
	wantAdvance(tb, one, "order", 1, 501, next, 10)
	// max_id only moves up
	wantAdvance(tb, other, "order", 1, 30, allocator.Range{First: next.Last + 1, Last: next.Last + 10}, 10)
}

// numbersFromMany: handles that know of IDs above the row, each of others, never get IDs below what
// they know.
func numbersFromMany(tb testing.TB, b NumbersBackend) {
	const handles, each = 6, 30
	first := b.Open(tb)
	add(tb, first, "order", 1, 5)
	var c Checker
	var moved atomic.Int64
	var wg sync.WaitGroup
	for i := range handles {
		n, ctx := b.Open(tb), within(tb)
		wg.Go(func() {
			for j := range each {
				from := int64(1 + 40*j*(i+1))
				r, _, err := insisted(ctx, n, "order", 1, from)
				if _, ok := errors.AsType[*allocator.AdvancedError](err); ok {
					moved.Add(1)
					r, _, err = insisted(ctx, n, "order", 1, from)
				}
				if err != nil || r.First < from {
					tb.Errorf("Advance from %d: %v, %v", from, r, err)
					return
				}
				c.Add(r)
			}
		})
	}
	wg.Wait()
	wantUnique(tb, &c)
	if moved.Load() == 0 {
		tb.Error("no handle moved max_id up")
	}
}

// numbersExhausted: near the largest int64 Advance takes fewer IDs, down to n, and never wraps.
func numbersExhausted(tb testing.TB, b NumbersBackend) {
	const end = math.MaxInt64
	n := b.Open(tb)
	add(tb, n, "order", end-25, 10)
	wantAdvance(tb, n, "order", 1, 1, allocator.Range{First: end - 25, Last: end - 16}, 10)
	for _, size := range []int64{16, math.MaxInt64} {
		_, _, err := insisted(within(tb), n, "order", size, 1)
		wantError(tb, "Advance over more than the 15 IDs that are left", err, allocator.ErrExhausted)
	}
	wantAdvance(tb, n, "order", 12, 1, allocator.Range{First: end - 15, Last: end - 4}, 10)
	// the step would be more than is left
	wantAdvance(tb, n, "order", 2, 1, allocator.Range{First: end - 3, Last: end - 1}, 10)
	for range 2 {
		_, _, err := insisted(within(tb), n, "order", 1, 1)
		wantError(tb, "Advance at the end", err, allocator.ErrExhausted)
	}
	wantRow(tb, n, allocator.Row{Name: "order", MaxID: end, Step: 10, Description: "of order"})

	add(tb, n, "jump", 1, 10)
	_, _, err := insisted(within(tb), n, "jump", 1, end)
	if _, ok := errors.AsType[*allocator.AdvancedError](err); !ok {
		tb.Errorf("Advance from the largest int64: error %v, want that max_id was moved up", err)
	}
	_, _, err = insisted(within(tb), n, "jump", 1, end)
	wantError(tb, "Advance from the largest int64, again", err, allocator.ErrExhausted)
}

func numbersAddTwice(tb testing.TB, b NumbersBackend) {
	one, other := b.Open(tb), b.Open(tb)
	add(tb, one, "order", 1, 10)
	wantAdvance(tb, one, "order", 1, 1, allocator.Range{First: 1, Last: 10}, 10)
	err := other.Add(within(tb), allocator.Row{Name: "order", MaxID: 1, Step: 99, Description: "again"})
	wantError(tb, "Add of a row that is there", err, allocator.ErrExists)
	wantRow(tb, one, allocator.Row{Name: "order", MaxID: 11, Step: 10, Description: "of order"})

	var made atomic.Int64
	var wg sync.WaitGroup
	for range 6 {
		n, ctx := b.Open(tb), within(tb)
		wg.Go(func() {
			switch err := n.Add(ctx, allocator.Row{Name: "raced", MaxID: 1, Step: 1}); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, allocator.ErrExists):
				tb.Errorf("Add: %v", err)
			}
		})
	}
	wg.Wait()
	if n := made.Load(); n != 1 {
		tb.Errorf("%d handles made one row", n)
	}
}

// numbersRaise: max_id moves up and never down. Step and description change if they are given.
func numbersRaise(tb testing.TB, b NumbersBackend) {
	one, other := b.Open(tb), b.Open(tb)
	add(tb, one, "order", 1, 10)
	raise := func(n allocator.Numbers, end int64, step *int64, description *string, want allocator.Row) {
		tb.Helper()
		if err := n.Raise(within(tb), "order", end, step, description); err != nil {
			tb.Errorf("Raise(%d): %v", end, err)
		}
		want.Name = "order"
		wantRow(tb, other, want)
	}
	raise(one, 500, nil, nil, allocator.Row{MaxID: 500, Step: 10, Description: "of order"})
	raise(other, 100, nil, nil, allocator.Row{MaxID: 500, Step: 10, Description: "of order"})
	// again: it is no unknown tag
	raise(one, 500, nil, nil, allocator.Row{MaxID: 500, Step: 10, Description: "of order"})
	raise(one, 0, new(int64(77)), nil, allocator.Row{MaxID: 500, Step: 77, Description: "of order"})
	raise(one, 1, nil, new("täglich"), allocator.Row{MaxID: 500, Step: 77, Description: "täglich"})
	raise(one, 600, new(int64(5)), new(""), allocator.Row{MaxID: 600, Step: 5})
	raise(one, 600, new(int64(5)), new(""), allocator.Row{MaxID: 600, Step: 5})
	wantAdvance(tb, other, "order", 1, 1, allocator.Range{First: 600, Last: 604}, 5)
	wantError(tb, "Raise with a step of 0", one.Raise(within(tb), "order", 0, new(int64(0)), nil),
		idspace.ErrBadValue)
	wantRow(tb, other, allocator.Row{Name: "order", MaxID: 605, Step: 5})

	// Others advance and raise meanwhile.
	var c Checker
	var wg sync.WaitGroup
	for i := range 4 {
		n, ctx := b.Open(tb), within(tb)
		wg.Go(func() {
			for j := range 25 {
				if err := n.Raise(ctx, "order", int64(605+j*20*(i+1)), nil, nil); err != nil {
					tb.Errorf("Raise: %v", err)
				}
				r, _, err := insisted(ctx, n, "order", 1, 1)
				if err != nil {
					tb.Errorf("Advance: %v", err)
				} else {
					c.Add(r)
				}
			}
		})
	}
	wg.Wait()
	wantUnique(tb, &c)
}

// numbersContextDone: no method outlasts its context by much, and none of them says that it was
// done when it began after it.
func numbersContextDone(tb testing.TB, b NumbersBackend) {
	n := b.Open(tb)
	add(tb, n, "order", 1, 10)
	for name, call := range map[string]func(context.Context) error{
		"Advance": func(ctx context.Context) error { _, _, err := n.Advance(ctx, "order", 1, 1, 1); return err },
		"Peek":    func(ctx context.Context) error { _, err := n.Peek(ctx, "order"); return err },
		"Add":     func(ctx context.Context) error { return n.Add(ctx, allocator.Row{Name: "new", MaxID: 1, Step: 1}) },
		"Raise":   func(ctx context.Context) error { return n.Raise(ctx, "order", 2, nil, nil) },
		"Mark":    func(ctx context.Context) error { return n.Mark(ctx, "order", 2, allocator.KindTrend) },
		"Remove":  func(ctx context.Context) error { return n.Remove(ctx, "gone", 2, allocator.KindTrend) },
		"Rows":    func(ctx context.Context) error { return n.Rows(ctx, func(allocator.Row) {}) },
		"Check":   n.Check,
	} {
		for _, wait := range []time.Duration{0, time.Duration(1+rand.IntN(500)) * time.Microsecond} {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			begin := time.Now()
			err := call(ctx)
			if took := time.Since(begin); took > soon {
				tb.Errorf("%s took %v after its context was done", name, took)
			}
			if err == nil && wait == 0 {
				tb.Errorf("%s returned no error when its context was done", name)
			}
			cancel()
		}
	}
	// Done or not: what comes next is unused.
	if r, _, err := insisted(within(tb), n, "order", 1, 1); err != nil || r.First != 1 && r.First != 2 &&
		r.First != 11 && r.First != 12 {
		tb.Errorf("the next range is %v, %v", r, err)
	}
}

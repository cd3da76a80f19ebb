package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// numbersMark: a mark never moves down. It needs no row, and outlives one.
func numbersMark(tb testing.TB, b NumbersBackend) {
	one, other := b.Open(tb), b.Open(tb)
	mark := func(n allocator.Numbers, tag string, mark int64, kind string, want allocator.Row) {
		tb.Helper()
		if err := n.Mark(within(tb), tag, mark, kind); err != nil {
			tb.Errorf("Mark(%s, %d): %v", tag, mark, err)
		}
		want.Name = tag
		wantRow(tb, other, want)
	}
	mark(one, "strict", 500, allocator.KindStrict, allocator.Row{Mark: 500, Kind: allocator.KindStrict})
	mark(other, "strict", 100, allocator.KindStrict, allocator.Row{Mark: 500, Kind: allocator.KindStrict})
	mark(one, "strict", 500, allocator.KindStrict, allocator.Row{Mark: 500, Kind: allocator.KindStrict})
	mark(one, "strict", 501, allocator.KindStrict, allocator.Row{Mark: 501, Kind: allocator.KindStrict})
	mark(one, "opaque", math.MaxInt64, allocator.KindOpaque,
		allocator.Row{Mark: math.MaxInt64, Kind: allocator.KindOpaque})
	add(tb, one, "order", 1, 10)
	mark(one, "order", 300, allocator.KindTrend, allocator.Row{MaxID: 1, Step: 10, Description: "of order", Mark: 300,
		Kind: allocator.KindTrend})
	wantAdvance(tb, one, "order", 1, 1, allocator.Range{First: 1, Last: 10}, 10)

	var wg sync.WaitGroup
	for i := range 4 {
		n, ctx := b.Open(tb), within(tb)
		wg.Go(func() {
			for j := range 25 {
				if err := n.Mark(ctx, fmt.Sprint("raced.", j), int64(1000*((i+j)%4)+1),
					allocator.KindTrend); err != nil {
					tb.Errorf("Mark: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for j := range 25 {
		wantRow(tb, one, allocator.Row{Name: fmt.Sprint("raced.", j), Mark: 3001, Kind: allocator.KindTrend})
	}
}

// numbersRemove: a removed row leaves its mark, and can be made again.
func numbersRemove(tb testing.TB, b NumbersBackend) {
	one, other := b.Open(tb), b.Open(tb)
	add(tb, one, "order", 1, 10)
	wantAdvance(tb, other, "order", 1, 1, allocator.Range{First: 1, Last: 10}, 10)
	for _, mark := range []int64{11, 5, 11} { // also without a row
		if err := one.Remove(within(tb), "order", mark, allocator.KindTrend); err != nil {
			tb.Errorf("Remove: %v", err)
		}
		wantRow(tb, other, allocator.Row{Name: "order", Mark: 11, Kind: allocator.KindTrend})
	}
	_, _, err := other.Advance(within(tb), "order", 1, 1, 1)
	wantError(tb, "Advance of a removed row", err, allocator.ErrUnknownTag)
	add(tb, other, "order", 20, 5)
	wantRow(tb, one, allocator.Row{Name: "order", MaxID: 20, Step: 5, Description: "of order", Mark: 11,
		Kind: allocator.KindTrend})
	wantAdvance(tb, one, "order", 1, 1, allocator.Range{First: 20, Last: 24}, 5)
}

// numbersRows: Rows has each row, and each mark without a row, also while others write.
func numbersRows(tb testing.TB, b NumbersBackend) {
	one, other := b.Open(tb), b.Open(tb)
	want := make(map[string]allocator.Row)
	const rows = 120
	for i := range rows {
		name := "tag." + string(rune('a'+i%26)) + string(rune('a'+i/26))
		add(tb, one, name, int64(i)+11, 10)
		want[name] = allocator.Row{Name: name, MaxID: int64(i) + 11, Step: 10, Description: "of " + name}
		if i%3 == 0 {
			if err := one.Mark(within(tb), name, int64(i)+1, allocator.KindTrend); err != nil {
				tb.Errorf("Mark: %v", err)
			}
			r := want[name]
			r.Mark, r.Kind = int64(i)+1, allocator.KindTrend
			want[name] = r
		}
		if i%6 == 0 {
			if err := one.Remove(within(tb), name, int64(i)+11, allocator.KindTrend); err != nil {
				tb.Errorf("Remove: %v", err)
			}
			want[name] = allocator.Row{Name: name, Mark: int64(i) + 11, Kind: allocator.KindTrend}
		}
	}
	add(tb, one, "busy", 1, 10)
	ctx, cancel := context.WithCancel(within(tb))
	var wg sync.WaitGroup
	wg.Go(func() {
		for sleep(ctx, poll) {
			other.Advance(ctx, "busy", 1, 1, 1)
		}
	})
	for range 3 {
		found := make(map[string]int)
		err := one.Rows(within(tb), func(r allocator.Row) {
			found[r.Name]++
			if r.Name != "busy" && r != want[r.Name] {
				tb.Errorf("Rows: %+v, want %+v", r, want[r.Name])
			}
		})
		if err != nil || len(found) != rows+1 {
			tb.Errorf("Rows: %d of %d, %v", len(found), rows+1, err)
		}
		for name, times := range found {
			if times != 1 {
				tb.Errorf("Rows: %s came %d times", name, times)
			}
		}
	}
	cancel()
	wg.Wait()
}

// numbersByHand: what SQL does to a row is what counts next.
func numbersByHand(tb testing.TB, b NumbersBackend) {
	if b.SetRow == nil || b.DeleteRow == nil {
		return
	}
	n := b.Open(tb)
	b.SetRow(tb, allocator.Row{Name: "order", MaxID: 5000, Step: 20, Description: "by hand"})
	wantRow(tb, n, allocator.Row{Name: "order", MaxID: 5000, Step: 20, Description: "by hand"})
	wantAdvance(tb, n, "order", 1, 1, allocator.Range{First: 5000, Last: 5019}, 20)
	b.SetRow(tb, allocator.Row{Name: "order", MaxID: 100, Step: 20})
	if _, _, err := insisted(within(tb), n, "order", 1, 5020); !errors.Is(err, allocator.ErrConflict) {
		tb.Errorf("Advance after SQL moved max_id down: %v", err)
	}
	if r, _, err := insisted(within(tb), n, "order", 1, 5020); err != nil || r.First < 5020 {
		tb.Errorf("Advance after max_id was moved up: %v, %v", r, err)
	}
	if err := n.Mark(within(tb), "order", 6000, allocator.KindTrend); err != nil {
		tb.Errorf("Mark: %v", err)
	}
	b.DeleteRow(tb, "order")
	wantRow(tb, n, allocator.Row{Name: "order", Mark: 6000, Kind: allocator.KindTrend})
	_, _, err := n.Advance(within(tb), "order", 1, 1, 1)
	wantError(tb, "Advance after SQL deleted the row", err, allocator.ErrUnknownTag)
}

// numbersBadRows: a row that SQL made bad is not served, and does not hide the others.
func numbersBadRows(tb testing.TB, b NumbersBackend) {
	if b.SetRow == nil {
		return
	}
	n := b.Open(tb)
	add(tb, n, "good", 1, 10)
	b.SetRow(tb, allocator.Row{Name: "nostep", MaxID: 5000, Step: 0})
	_, _, err := insisted(within(tb), n, "nostep", 1, 1)
	wantError(tb, "Advance of a row with a step of 0", err, allocator.ErrDamaged)
	if r, err := n.Peek(within(tb), "nostep"); err != nil || !errors.Is(r.Problem, allocator.ErrDamaged) ||
		r.MaxID != 5000 {
		tb.Errorf("Peek of a row with a step of 0: %+v, %v", r, err)
	}
	b.SetRow(tb, allocator.Row{Name: "negative", MaxID: -5, Step: 10})
	if r, _, err := insisted(within(tb), n, "negative", 1, 1); err == nil {
		tb.Errorf("Advance of a row with a max_id of -5: %v", r)
	}
	if r, _, err := insisted(within(tb), n, "negative", 1, 100); err == nil && r.First < 100 {
		tb.Errorf("Advance from 100 of a row that had a max_id of -5: %v", r)
	}
	b.SetRow(tb, allocator.Row{Name: "no such name", MaxID: 7, Step: 10})
	found := make(map[string]error)
	if err := n.Rows(within(tb), func(r allocator.Row) { found[r.Name] = r.Problem }); err != nil {
		tb.Errorf("Rows: %v", err)
	}
	wantError(tb, "the row without a step", found["nostep"], allocator.ErrDamaged)
	wantError(tb, "the row with an illegal name", found["no such name"], idspace.ErrBadTag)
	if problem, ok := found["good"]; !ok || problem != nil {
		tb.Errorf("the good row came: %v, with the problem %v", ok, problem)
	}
	if err := n.Raise(within(tb), "nostep", 5000, new(int64(10)), nil); err != nil {
		tb.Errorf("Raise with a step: %v", err)
	}
	wantAdvance(tb, n, "nostep", 1, 1, allocator.Range{First: 5000, Last: 5009}, 10)
}

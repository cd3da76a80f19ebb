package allocator_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

func TestViews(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tags []string
		for i := range 25 {
			tags = append(tags, fmt.Sprintf("a.%02d", i))
		}
		s := newStore(t, 100, tags...)
		a := start(t, allocator.Config{Records: s})
		for i, tag := range tags {
			if _, err := a.Take(t.Context(), tag, int64(1+i)); err != nil {
				t.Fatal(err)
			}
		}
		take(t, a, 50)
		var names []string
		for after := ""; ; after = names[len(names)-1] {
			page := a.Views(allocator.Query{Prefix: "a.", After: after, Limit: 7})
			if len(page) == 0 {
				break
			}
			if len(page) > 7 || len(names) > 25 {
				t.Fatalf("a page of %d", len(page))
			}
			for _, v := range page {
				names = append(names, v.Tag)
			}
		}
		if fmt.Sprint(names) != fmt.Sprint(tags) {
			t.Errorf("the pages have %v, want %v", names, tags)
		}
		if got := a.Views(allocator.Query{After: "zzz", Limit: 7}); len(got) != 0 {
			t.Errorf("beyond the end: %+v", got)
		}
		var found []string
		for _, v := range a.Views(allocator.Query{Contains: ".1", After: "a.11", Limit: 3}) {
			found = append(found, v.Tag)
		}
		if got := fmt.Sprint(found); got != "[a.12 a.13 a.14]" {
			t.Errorf("the page with .1 has %s", got)
		}
		if a.Tags() != 26 {
			t.Errorf("Tags() is %d, want 26", a.Tags())
		}
	})
}

// TestBusiest compares with the list sorted whole.
func TestBusiest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		random := allocatortest.Seed(t)
		tags := many(60)
		a := start(t, allocator.Config{Records: newStore(t, 100, tags...)})
		for _, tag := range tags {
			takeOf(t, a, tag, 1+random.Int64N(20)) // so that some are alike
		}
		all := a.Views(allocator.Query{Limit: 100})
		slices.SortStableFunc(all, func(x, y allocator.View) int { return int(y.Taken - x.Taken) })
		for _, limit := range []int{0, 1, 2, 20, 59, 60, 61, 1000} {
			want := all[:min(limit, len(all))]
			if got := a.Busiest(limit); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("Busiest(%d) = %+v, want %+v", limit, got, want)
			}
		}
	})
}

// TestTotals has a tag in each state, two that are ok, and none.
func TestTotals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100, "failing", "loading", "ok")
		s.create("exhausted", math.MaxInt64, 100)
		s.onReserve(func(ctx context.Context, tag string, _ int64) error {
			switch tag {
			case "failing":
				return errAway
			case "loading":
				return sleep(ctx, time.Hour)
			}
			return nil
		})
		a := start(t, allocator.Config{Records: s})
		want := allocator.Totals{Lasts: math.Inf(1), States: map[string]int{"ok": 0, "paused": 0, "loading": 0, "failing": 0, "exhausted": 0}}
		if got := a.Totals(0); !reflect.DeepEqual(got, want) {
			t.Errorf("with no tag: %+v", got)
		}
		for _, tag := range []string{"exhausted", "failing", "loading"} {
			queued(t, a, tag, 1)
		}
		take(t, a, 9) // too few for a second segment
		takeOf(t, a, "ok", 30)
		want = allocator.Totals{Lasts: math.Inf(1), Left: 91 + 170, States: map[string]int{"ok": 2, "paused": 0, "loading": 1, "failing": 1, "exhausted": 1}}
		if got := a.Totals(0); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		for _, v := range a.Views(allocator.Query{Limit: 10}) {
			if v.State != v.Tag && v.Tag != "order" {
				t.Errorf("%s is %s", v.Tag, v.State)
			}
		}
	})
}

func TestView(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		a := start(t, allocator.Config{Records: s})
		s.slow(time.Second)
		queued(t, a, "order", 30)
		synctest.Wait()
		if v := a.Views(allocator.Query{Limit: 1})[0]; v.State != "loading" || v.Waiting != 1 || v.Rate != 0 || !v.Refilled.IsZero() {
			t.Errorf("while it loads: %+v", v)
		}
		s.back()
		time.Sleep(11 * time.Second)
		v := a.Views(allocator.Query{Limit: 1})[0]
		want := []allocator.Segment{
			{Range: allocator.Range{First: 1, Last: 100}, Next: 31},
			{Range: allocator.Range{First: 101, Last: 200}, Next: 101},
		}
		if v.State != "ok" || v.Left != 170 || v.Taken != 30 || v.Waiting != 0 || v.Step != 100 || v.Rate != 3 || fmt.Sprint(v.Segments) != fmt.Sprint(want) {
			t.Errorf("afterwards: %+v", v)
		}
	})
}

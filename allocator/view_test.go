package allocator_test

import (
	"cmp"
	"context"
	"errors"
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
		a := start(t, allocator.Config{Store: s})
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
		a := start(t, allocator.Config{Store: newStore(t, 100, tags...)})
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

// A tag that is used now stands above one from which more IDs were taken in the past.
func TestBusiestIsThePresentRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := start(t, allocator.Config{Store: newStore(t, 100, "past", "present")})
		takeOf(t, a, "past", 50_000)
		takeOf(t, a, "present", 1)
		time.Sleep(time.Hour)
		for range 10 {
			takeOf(t, a, "present", 500)
			time.Sleep(time.Second)
		}
		if got := a.Busiest(1); len(got) != 1 || got[0].Tag != "present" || got[0].Rate < 100 {
			t.Errorf("%+v", got)
		}
	})
}

// TestTotals has a tag in each state, two that are ok, and none.
func TestTotals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared(t, 100, "failing", "loading", "ok", "regressed")
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
		a := start(t, allocator.Config{Store: s})
		want := allocator.Totals{Lasts: math.Inf(1), States: map[string]int{"ok": 0, "paused": 0, "loading": 0, "failing": 0, "regressed": 0, "exhausted": 0}}
		if got := a.Totals(0); !reflect.DeepEqual(got, want) {
			t.Errorf("with no tag: %+v", got)
		}
		hear(a, "regressed", 1000)
		for _, tag := range []string{"exhausted", "failing", "loading", "regressed"} {
			if _, _, err := a.Request(nil, tag, 1); err != nil {
				t.Fatal(err)
			}
		}
		take(t, a, 9) // too few for a second segment
		takeOf(t, a, "ok", 30)
		want = allocator.Totals{Lasts: math.Inf(1), Left: 91 + 170, States: map[string]int{"ok": 2, "paused": 0, "loading": 1, "failing": 1, "regressed": 1, "exhausted": 1}}
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

// The tags that end first are those of the list sorted whole. Tags that get new IDs are not among them.
func TestTotalsListWhatEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		random := allocatortest.Seed(t)
		tags := many(40)
		s := newStore(t, 1000, "well")
		a := start(t, allocator.Config{Store: s})
		takeOf(t, a, "well", 50)
		for _, tag := range tags {
			s.create(tag, 1, 1000+random.Int64N(500))
			takeOf(t, a, tag, 1)
		}
		time.Sleep(time.Minute)
		s.away()
		for i, tag := range tags {
			takeOf(t, a, tag, 150+random.Int64N(50)) // a tenth is used, and the refill fails
			if i%10 == 0 {
				takeOf(t, a, tag, a.Named([]string{tag})[0].Left)
			}
		}
		time.Sleep(time.Second)
		all := a.Views(allocator.Query{Prefix: "tag", Limit: 100})
		slices.SortStableFunc(all, func(x, y allocator.View) int {
			lasts := func(v allocator.View) float64 {
				if v.Left == 0 {
					return 0
				}
				return float64(v.Left) / v.Rate
			}
			return cmp.Or(cmp.Compare(lasts(x), lasts(y)), cmp.Compare(y.Rate, x.Rate))
		})
		for _, limit := range []int{0, 1, 10, 40, 100} {
			var want []allocator.TagEnd
			for _, v := range all[:min(limit, len(all))] {
				want = append(want, allocator.TagEnd{Tag: v.Tag, Left: v.Left, Rate: v.Rate})
			}
			if got := a.Totals(limit).Ending; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("at most %d: %+v, want %+v", limit, got, want)
			}
		}
		if got := a.Named([]string{"well", "nosuch", tags[3]}); len(got) != 2 || got[0].Tag != "well" || got[1].Tag != tags[3] {
			t.Errorf("%+v", got)
		}
		s.back()
		time.Sleep(time.Minute)
		if got := a.Totals(10).Ending; len(got) > 0 {
			t.Errorf("all is well, and these end: %+v", got)
		}
	})
}

func TestView(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		a := start(t, allocator.Config{Store: s})
		s.slow(time.Second)
		if _, _, err := a.Request(nil, "order", 30); err != nil {
			t.Fatal(err)
		}
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

// A strict tag is not loading while a claim is under way. It is exhausted when even the smallest request cannot be served.
func TestViewOfStrictTag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		if _, err := s.Create(t.Context(), allocator.Tag{Name: "invoice", MaxID: math.MaxInt64 - 3, Order: allocator.Strict}); err != nil {
			t.Fatal(err)
		}
		a := start(t, allocator.Config{Store: s})
		wantState := func(want string) {
			t.Helper()
			v, states := a.Views(allocator.Query{Limit: 1})[0], a.Totals(0).States
			if v.State != want || states[want] != 1 || v.Order != allocator.Strict || v.Left != 0 || v.Step != 0 || len(v.Segments) != 0 {
				t.Errorf("want %s: %+v %v", want, v, states)
			}
		}
		takeOf(t, a, "invoice", 1)
		s.slow(time.Second)
		if _, _, err := a.Request(nil, "invoice", 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantState(allocator.StateOK)
		time.Sleep(time.Minute)
		if _, err := a.Take(t.Context(), "invoice", 2); !errors.Is(err, allocator.ErrExhausted) {
			t.Errorf("2 IDs where 1 is left: %v", err)
		}
		wantState(allocator.StateOK)
		takeOf(t, a, "invoice", 1) // the last one
		if _, err := a.Take(t.Context(), "invoice", 1); !errors.Is(err, allocator.ErrExhausted) {
			t.Errorf("one more ID: %v", err)
		}
		wantState(allocator.StateExhausted)
	})
}

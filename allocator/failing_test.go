package allocator_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// A name that is no tag, for all that is known while the store is away, does not make the
// generator say that it has run dry: it has IDs of others. Where memory has none at all, it has.
func TestFailing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100, "coupon")
		a := start(t, allocator.Config{Records: s})
		ask := func(tag string, n int64) {
			t.Helper()
			if _, err := a.Take(t.Context(), tag, n); err == nil {
				t.Errorf("%d IDs of %s came", n, tag)
			}
		}
		want := func(tags int, store bool, dry string) {
			t.Helper()
			synctest.Wait()
			f := a.Failing()
			if f.Tags != tags || errors.Is(f.Store, errAway) != store || (f.Dry != nil) != (dry != "") || dry != "" && !strings.HasPrefix(f.Dry.Error(), dry) {
				t.Errorf("%+v; want %d tags, dry %q", f, tags, dry)
			}
		}
		want(0, false, "")
		s.away()
		ask("unknown", 1)
		want(1, true, "unknown has no IDs: ")
		s.back()
		time.Sleep(5 * time.Second)
		want(0, false, "")

		if _, err := a.Take(t.Context(), "order", 5); err != nil {
			t.Fatal(err)
		}
		s.away()
		ask("unknown", 1)
		ask("coupon", 1)
		want(2, true, "")
		if f := a.Totals(0); !math.IsInf(f.Lasts, 1) {
			t.Errorf("nobody takes these, and they last %v s", f.Lasts)
		}

		time.Sleep(5 * time.Second)
		if _, err := a.Take(t.Context(), "order", 45); err != nil { // and so the next segment is wanted
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		want(3, true, "")
		v := a.Views(allocator.Query{Prefix: "order", Limit: 1})[0]
		if f := a.Totals(0); v.Left != 50 || f.Lasts != float64(v.Left)/v.Rate {
			t.Errorf("%v s are left of %+v", f.Lasts, v)
		}
		if _, err := a.Take(t.Context(), "order", 50); err != nil {
			t.Fatal(err)
		}
		want(3, true, "unknown has no IDs: ")
		if f := a.Totals(0); f.Lasts != 0 {
			t.Errorf("none is left, and they last %v s", f.Lasts)
		}
		s.back()
		time.Sleep(5 * time.Second)
		want(0, false, "")
	})
}

// What an operator's max_id drops from memory is known at once, not only when the next refill has failed.
func TestFailingAfterRaise(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		a := start(t, allocator.Config{Records: s})
		take(t, a, 5)
		s.away()
		take(t, a, 20) // the next segment is wanted, and the store fails
		synctest.Wait()
		if f := a.Failing(); f.Tags != 1 || f.Dry != nil {
			t.Fatalf("%+v; want one tag that fails and has IDs", f)
		}
		a.Push(s.move(1_000_000))
		if f := a.Failing(); f.Dry == nil {
			t.Error("nothing is left in memory, and nobody knows")
		}
		if err := a.CheckTroubles(); err != nil {
			t.Error(err)
		}
	})
}

// Where all that is asked for is locked, as a whole table may be, the store does not do its work.
func TestFailingOfALockedTable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100, "coupon")
		a := start(t, allocator.Config{Records: s})
		want := func(when string, store, dry bool) {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if f := a.Failing(); errors.Is(f.Store, allocator.ErrLocked) != store || errors.Is(f.Dry, allocator.ErrLocked) != dry {
				t.Errorf("%s: %+v", when, f)
			}
		}
		lock := func(tags ...string) {
			s.onReserve(func(_ context.Context, tag string, _ int64) error {
				if slices.Contains(tags, tag) {
					return allocator.ErrLocked
				}
				return nil
			})
		}
		lock("order", "coupon")
		a.Take(t.Context(), "order", 1)
		want("nothing in memory", true, true)
		lock("order")
		if _, err := a.Take(t.Context(), "coupon", 1); err != nil {
			t.Fatal(err)
		}
		want("another tag is refilled", false, false)
		lock("order", "coupon")
		a.Take(t.Context(), "coupon", 50)
		want("another tag has IDs", true, false)
		a.Take(t.Context(), "coupon", 49)
		want("it has none any more", true, true)
	})
}

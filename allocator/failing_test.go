package allocator_test

import (
	"context"
	"errors"
	"math"
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
		want := func(tags int, store, dry bool) {
			t.Helper()
			synctest.Wait()
			f := a.Failing()
			if f.Tags != tags || errors.Is(f.Store, errAway) != store || (f.Dry != nil) != dry {
				t.Errorf("%+v; want %d tags, dry %v", f, tags, dry)
			}
		}
		want(0, false, false)
		s.away()
		ask("unknown", 1)
		want(1, true, true)
		s.back()
		time.Sleep(5 * time.Second)
		want(0, false, false)

		if _, err := a.Take(t.Context(), "order", 5); err != nil {
			t.Fatal(err)
		}
		s.away()
		ask("unknown", 1)
		ask("coupon", 1)
		want(2, true, false)
		if f := a.Totals(0); !math.IsInf(f.Lasts, 1) {
			t.Errorf("nobody takes these, and they last %v s", f.Lasts)
		}

		time.Sleep(5 * time.Second)
		if _, err := a.Take(t.Context(), "order", 45); err != nil { // and so the next segment is wanted
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		want(3, true, false)
		v := a.Views(allocator.Query{Prefix: "order", Limit: 1})[0]
		if f := a.Totals(0); v.Left != 50 || f.Lasts != float64(v.Left)/v.Rate {
			t.Errorf("%v s are left of %+v", f.Lasts, v)
		}
		if _, err := a.Take(t.Context(), "order", 50); err != nil {
			t.Fatal(err)
		}
		want(3, true, true)
		if f := a.Totals(0); f.Lasts != 0 {
			t.Errorf("none is left, and they last %v s", f.Lasts)
		}
		s.back()
		time.Sleep(5 * time.Second)
		want(0, false, false)
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

// A locked row is the trouble of its tag. The store serves others.
func TestFailingOfALockedRow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100, "coupon")
		a := start(t, allocator.Config{Records: s})
		s.onReserve(func(_ context.Context, tag string, _ int64) error {
			if tag == "order" {
				return allocator.ErrLocked
			}
			return nil
		})
		a.Take(t.Context(), "order", 1)
		if f := a.Failing(); f.Tags != 1 || f.Store != nil || f.Dry != nil {
			t.Errorf("%+v", f)
		}
		if _, refills := a.Has("coupon"); !refills {
			t.Error("it lends no IDs of another tag")
		}
	})
}

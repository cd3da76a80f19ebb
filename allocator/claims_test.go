package allocator_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

const strict, opaque9 = allocator.Strict, allocator.Order("opaque-d9")

// TestPropose (N1): in the order of records a claim begins at the end, in a database where the row is. A row below what
// is known is raised first. Both are cut at the limit, and no claim takes more than 1/64 of what it leaves, or what is
// wanted.
func TestPropose(t *testing.T) {
	for name, c := range map[string]struct {
		order       allocator.Order
		alone       bool  // without a database
		end, row    int64 // 0: as the record says
		mark, limit int64
		n           int64
		want        allocator.Range // zero: an error
		moves       int             // how often the store is moved up before
	}{
		"a step":                            {alone: true, end: 51, n: 1, want: ids(51, 60)},
		"more than a step":                  {alone: true, end: 51, n: 25, want: ids(51, 75)},
		"strict":                            {order: strict, end: 51, n: 3, want: ids(51, 53)},
		"opaque, beside a database":         {order: opaque9, end: 51, n: 1, want: ids(51, 60)},
		"a row":                             {end: 51, n: 1, want: ids(51, 60)},
		"a batch of a row":                  {end: 51, n: 25, want: ids(51, 75)},
		"a row that is ahead":               {end: 51, row: 101, n: 1, want: ids(101, 110)},
		"a row below the end":               {end: 51, row: 21, n: 1, want: ids(51, 60), moves: 1},
		"a record and a row below the mark": {end: 51, mark: 71, n: 1, want: ids(71, 80), moves: 2},
		"a record below the mark":           {alone: true, end: 51, mark: 71, n: 1, want: ids(71, 80), moves: 1},
		"the last IDs":                      {alone: true, end: 51, limit: 53, n: 3, want: ids(51, 53)},
		"the last IDs of a row":             {end: 51, limit: 53, n: 2, want: ids(51, 53)},
		"too few are left":                  {alone: true, end: 51, limit: 53, n: 4, want: ids(51, 53)},
		"too few are left of a row":         {end: 51, limit: 53, n: 4, want: ids(51, 53)},
		"too few are left of strict IDs":    {order: strict, end: 51, limit: 53, n: 4},
		"a share of what is left":           {alone: true, end: 1, limit: 320, n: 1, want: ids(1, 5)},
		"more than the share is wanted":     {alone: true, end: 1, limit: 320, n: 9, want: ids(1, 9)},
		"a step that is less than that":     {alone: true, end: 1, limit: 641, n: 1, want: ids(1, 10)},
		"a row above the limit":             {end: 51, row: 101, limit: 100, n: 1},
		"the largest IDs":                   {alone: true, end: math.MaxInt64 - 2, n: 2, want: ids(math.MaxInt64-2, math.MaxInt64-1)},
		"the share of a domain, at a time":  {order: opaque9, end: 999_999_900, n: 1, want: ids(999_999_900, 999_999_900)},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			if c.alone {
				w.numbers = nil
			}
			g := w.join("one")
			tag := allocator.Tag{Name: "order", MaxID: c.end, Order: c.order, Rules: allocator.Rules{Limit: c.limit}}
			if tag.Step = 10; c.order == strict {
				tag.Step = 0
			}
			if c.order == opaque9 {
				tag.Limit = 999_999_999
			}
			w.make(tag)
			if c.row > 0 {
				w.numbers.SetRow(allocator.Row{Name: "order", MaxID: c.row, Step: 10})
			}
			g.index.Observe("order", c.mark)
			for range c.moves {
				if moved, ok := errors.AsType[*allocator.AdvancedError](g.refused("order", allocator.ErrConflict)); !ok || moved.Seen < c.want.First {
					t.Errorf("it was moved up: %+v", moved)
				}
			}
			grant, err := g.Reserve(t.Context(), "order", c.n)
			if c.want == (allocator.Range{}) {
				if err == nil || w.record("order").Last != (allocator.Claim{}) {
					t.Errorf("%v was claimed", grant.Range)
				}
				return
			}
			s := w.record("order")
			if err != nil || grant.Range != c.want || s.MaxID != c.want.Last+1 || grant.Stored != s {
				t.Errorf("%v, %v; want %v; the record is %+v", grant.Range, err, c.want, s)
			}
			if !c.alone && c.order == allocator.Trend && w.row("order").MaxID < s.MaxID {
				t.Errorf("the row is %+v", w.row("order"))
			}
		})
	}
}

// TestRefusedClaim (N2): what is not allowed by the record, or begins below what is known by then, is not written, and
// nothing of it is handed out.
func TestRefusedClaim(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(w *world, g *gen) // after the range was taken from the row
		loaded    bool                   // the generator learns of it by the conflict of its write
		want      error
	}{
		"deleted": {func(w *world, _ *gen) {
			w.write("order", func(s allocator.Stored) (allocator.Tag, error) { return s.Delete(0) })
		}, true, allocator.ErrDeleted},
		"paused": {func(w *world, _ *gen) {
			w.write("order", func(s allocator.Stored) (allocator.Tag, error) {
				return s.Change(allocator.Change{RulesChange: changeOf(w.t, `{"paused":true}`)})
			})
		}, true, allocator.ErrPaused},
		"above the limit": {func(w *world, _ *gen) {
			w.write("order", func(s allocator.Stored) (allocator.Tag, error) {
				return s.Change(allocator.Change{RulesChange: changeOf(w.t, `{"limit":"5"}`)})
			})
		}, true, allocator.ErrExhausted},
		"its first ID is below the end":      {func(w *world, _ *gen) { w.raise("order", 12, 0) }, true, allocator.ErrConflict},
		"a peer has claimed more":            {func(_ *world, g *gen) { hear(g.Allocator, "order", 12) }, false, allocator.ErrConflict},
		"it is at the end, which was raised": {func(w *world, _ *gen) { w.raise("order", 11, 0) }, true, nil},
		"a peer has claimed up to it":        {func(_ *world, g *gen) { hear(g.Allocator, "order", 11) }, false, nil},
		"the record is gone":                 {func(w *world, _ *gen) { w.records.Lose() }, true, allocator.ErrConflict},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.make(allocator.Tag{Name: "order", MaxID: 11})
			g := w.join("one")
			g.on(nil, atFirst("advance", func() { c.meanwhile(w, g) }))
			if c.want == nil {
				g.want("order", 1, 11, 20)
				return
			}
			g.refused("order", c.want)
			calls := g.called(true)
			if slices.Contains(calls, "swap") != c.loaded {
				t.Errorf("the calls were %v", calls)
			}
			if s := w.record("order"); s.Last != (allocator.Claim{}) {
				t.Errorf("the record is %+v", s)
			}
		})
	}
}

// TestClaimInTurn (N2): a range above one that another generator is about to claim waits for it, and both are
// claimed. If the other one does not come, it waits for 25 ms. How it hears of the other one does not matter.
func TestClaimInTurn(t *testing.T) {
	for name, c := range map[string]struct {
		used   bool          // the tag was claimed before
		first  time.Duration // until the first range is claimed
		second time.Duration // until the second is
		lost   bool          // the first is
		heard  bool          // of the first by a push, else by the watch
	}{
		"pushed soon":     {true, 5 * time.Millisecond, 5 * time.Millisecond, false, true},
		"watched soon":    {true, 5 * time.Millisecond, 5 * time.Millisecond, false, false},
		"at last":         {true, 24 * time.Millisecond, 24 * time.Millisecond, false, false},
		"never":           {true, time.Second, 25 * time.Millisecond, true, false},
		"no claim at all": {false, 5 * time.Millisecond, 0, true, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.make(allocator.Tag{Name: "order"})
			one, two := w.join("one"), w.join("two")
			if c.used {
				one.want("order", 1, 1, 10)
			}
			if !c.heard {
				two.start()
			}
			_, waiter, err := two.Request(nil, "order", 1) // a tag that is in memory
			if err != nil {
				t.Fatal(err)
			}
			_, _ = waiter.Wait(t.Context())
			synctest.Wait()
			first := w.row("order").MaxID
			time.Sleep(time.Second)
			one.on(nil, func(call string) error {
				switch call {
				case "advance":
					time.Sleep(c.first)
				case "swap":
					if c.heard {
						two.Push(w.record("order"))
					}
				}
				return nil
			})
			failed := make(chan error, 1)
			go func() { _, err := one.Reserve(t.Context(), "order", 1); failed <- err }()
			synctest.Wait()
			w.write("order", func(s allocator.Stored) (allocator.Tag, error) { // the watch shows it while the second one waits
				if !c.used {
					s.Last = allocator.Claim{}
				}
				return s.Tag, nil
			})
			begin := time.Now()
			two.want("order", 1, first+10, first+19)
			if took := time.Since(begin); took < c.second || took > c.second+time.Millisecond {
				t.Errorf("it took %v, want %v", took, c.second)
			}
			if err := <-failed; errors.Is(err, allocator.ErrConflict) != c.lost || err != nil && !c.lost {
				t.Errorf("the first one: %v", err)
			}
		})
	}
}

// TestClaimAgain (N3): a claim that surely was not written is written again, on the record as it is now: with the same
// range of a row, else with a new one. A conflict without another writer says nothing: the same range is written again,
// of strict tags too.
func TestClaimAgain(t *testing.T) {
	for name, c := range map[string]struct {
		order allocator.Order
		alone bool
		other bool // there is another writer
		again int  // attempts of [Reserve] that fail
	}{
		"a row, another writer":         {other: true},
		"a row, nobody":                 {},
		"records alone, another writer": {alone: true, other: true, again: 1},
		"records alone, nobody":         {alone: true},
		"a strict tag, another writer":  {order: strict, other: true, again: 1},
		"a strict tag, nobody":          {order: strict},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			if c.alone {
				w.numbers = nil
			}
			w.make(allocator.Tag{Name: "order", MaxID: 5, Order: c.order})
			g := w.join("one")
			conflicts := 0
			g.on(func(call string) error {
				if call != "swap" || conflicts == 3 {
					return nil
				}
				if conflicts++; c.other { // what it writes must not be lost
					w.write("order", func(s allocator.Stored) (allocator.Tag, error) { s.Description += "+"; return s.Tag, nil })
					return nil
				}
				return allocator.ErrConflict
			}, nil)
			for range c.again {
				err := g.refused("order", allocator.ErrConflict)
				if _, overtaken := errors.AsType[*allocator.OvertakenError](err); overtaken != (c.order == strict) {
					t.Errorf("the error is %v", err)
				}
				conflicts = 3
			}
			want := ids(5, 14)
			if c.order == strict {
				want = ids(5, 5)
			}
			g.want("order", 1, want.First, want.Last)
			if text := w.record("order").Description; c.other && c.again == 0 && text != "+++" {
				t.Errorf("the description is %q", text)
			}
			if advances := len(slices.DeleteFunc(g.called(true), func(call string) bool { return call != "advance" })); advances > 1 {
				t.Errorf("%d ranges were taken from the row", advances)
			}
		})
	}
}

// TestClaimAgainEnds (N3): a claim that is never written ends with its context, and does not ask on and on.
func TestClaimAgainEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order"})
		g := w.join("one")
		g.failing("swap", allocator.ErrConflict)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if grant, err := g.Reserve(ctx, "order", 1); err == nil {
			t.Errorf("Reserve: %v", grant.Range)
		}
		if n := len(g.called(true)); n < 100 || n > 1000 { // pauses of up to 50 ms
			t.Errorf("%d writes in 5 s", n)
		}
	})
}

// TestClaimUncertain (N4): the range of a claim that may have been written, or may still be, is lost. It is not sent
// again.
func TestClaimUncertain(t *testing.T) {
	for name, late := range map[string]time.Duration{"not written": -1, "written": 0, "written later": 20 * time.Millisecond} {
		for _, order := range []allocator.Order{allocator.Trend, strict} {
			inBubble(t, name+" "+order.String(), func(t *testing.T) {
				w := newWorld(t)
				w.make(allocator.Tag{Name: "order", Order: order})
				g := w.join("one").start()
				g.on(func(call string) error {
					if call != "swap" || late == 0 {
						return nil
					}
					if s := w.record("order"); late > 0 {
						time.AfterFunc(late, func() {
							s.MaxID, s.Last = 11, allocator.Claim{First: 1, Last: 10, Run: "one"}
							w.records.Swap(context.Background(), s.Tag, s.Revision)
						})
					}
					return errLost
				}, func(call string) error {
					if call == "swap" {
						return errLost
					}
					return nil
				})
				if err := g.refused("order", errLost); errors.Is(err, allocator.ErrConflict) {
					t.Errorf("error %v", err)
				}
				if calls := g.called(true); len(calls) > 2 || calls[len(calls)-1] != "swap" {
					t.Errorf("the calls were %v", calls)
				}
				g.on(nil, nil)
				time.Sleep(late + time.Second)
				first := w.record("order").MaxID
				if order == allocator.Trend {
					first = 11
				}
				g.wantIDs("order", 1, first)
				if n := len(published[allocator.Regressed](&g.events)); n > 0 {
					t.Errorf("%d alerts", n)
				}
			})
		}
	}
}

// TestOpaqueClaim: no number of an opaque tag is claimed while its key is not there.
func TestOpaqueClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order", Order: opaque9, Step: 10, Rules: allocator.Rules{Limit: 999_999_999}})
		g := w.join("one")
		g.keys = allocator.ErrDamaged
		g.refused("order", allocator.ErrDamaged)
		if s := w.record("order"); s.MaxID != 1 {
			t.Errorf("the record is %+v", s)
		}
		g.keys = nil
		g.want("order", 1, 1, 10)
	})
}

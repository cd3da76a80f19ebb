package allocator_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestBasis (N6): a claim is based on a record that was loaded, acknowledged, pushed or watched less than 100 ms ago.
// Else it is loaded. The time before the call counts: after a restore its revision may mean another record.
func TestBasis(t *testing.T) {
	for name, c := range map[string]struct {
		learn func(w *world, g *gen)
		late  string // this answer comes 101 ms late
		old   bool   // the record was written more than 100 ms ago
	}{
		"loaded": {learn: func(w *world, g *gen) {
			time.Sleep(time.Second)
			g.failing("advance", allocator.ErrConflict)
			g.refused("order", allocator.ErrConflict)
			g.on(nil, nil)
		}},
		"acknowledged":       {learn: func(w *world, g *gen) { g.want("order", 1, 21, 30) }},
		"acknowledged, late": {learn: func(w *world, g *gen) { g.want("order", 1, 21, 30) }, late: "swap"},
		"pushed": {learn: func(w *world, g *gen) {
			time.Sleep(time.Second)
			g.Push(w.raise("order", 0, 1))
		}},
		"pushed, late": {learn: func(w *world, g *gen) {
			s := w.raise("order", 0, 1)
			time.Sleep(101 * time.Millisecond) // this process stood still
			g.Push(s)
		}, old: true},
		"watched": {learn: func(w *world, g *gen) {
			g.start()
			time.Sleep(time.Second)
			w.raise("order", 0, 1)
			synctest.Wait()
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.make(allocator.Tag{Name: "order"})
			g := w.join("one")
			g.wantIDs("order", 1, 1) // it is in memory
			synctest.Wait()
			g.on(nil, func(call string) error {
				if call == c.late {
					time.Sleep(101 * time.Millisecond)
				}
				return nil
			})
			c.learn(w, g)
			g.on(nil, nil)
			loads := func() int {
				return len(slices.DeleteFunc(g.called(false), func(call string) bool { return call != "load" }))
			}
			want := 0
			if c.late != "" || c.old {
				want = 1
			}
			loads()
			time.Sleep(100 * time.Millisecond * time.Duration(1-want))
			if _, err := g.Reserve(t.Context(), "order", 1); err != nil || loads() != want {
				t.Errorf("Reserve: %v; it was loaded, or not, by mistake", err)
			}
			time.Sleep(101 * time.Millisecond)
			if _, err := g.Reserve(t.Context(), "order", 1); err != nil || loads() != 1 {
				t.Errorf("Reserve: %v; it was not loaded after 101 ms", err)
			}
		})
	}
}

// TestRestoreWhileALoadStandsStill (N6): the answer to a read is from before a restore, after which another record has
// its revision. So a read that took long is repeated.
func TestRestoreWhileALoadStandsStill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "invoice", Order: allocator.Strict})
		g := w.join("one")
		g.on(nil, atFirst("load", func() {
			records := w.records.Snapshot()
			restored := records["invoice"]
			restored.MaxID = 500
			records["invoice"] = restored
			w.records.Restore(records)
			time.Sleep(1001 * time.Millisecond)
		}))
		g.wantIDs("invoice", 2, 500)
	})
}

// TestRaised (N7): a record below what this generator knows gets all that it knows: end, floor and rules. There is an
// alert, after the acknowledgement. An old server's answer changes nothing.
func TestRaised(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.numbers = nil
		w.make(allocator.Tag{Name: "order"})
		g := w.join("one")
		g.wantIDs("order", 1, 1)
		old := w.records.Snapshot()
		g.Push(w.write("order", func(s allocator.Stored) (allocator.Tag, error) {
			to := int64(500)
			return s.Change(allocator.Change{MaxID: &to, RulesChange: changeOf(t, `{"limit":"9000"}`)})
		}))
		g.wantIDs("order", 1, 500)

		time.Sleep(time.Second)
		g.behind(map[string]allocator.Stored{"order": old["order"]}) // a deposed leader's
		if moved, ok := errors.AsType[*allocator.AdvancedError](g.refused("order", allocator.ErrConflict)); ok || w.record("order").MaxID < 500 {
			t.Errorf("a stale answer is an alert: %+v; the record is %+v", moved, w.record("order"))
		}
		g.behind(nil)

		w.records.Restore(old)
		time.Sleep(time.Second)
		seen := g.Seen("order")
		err := g.refused("order", allocator.ErrConflict)
		if moved, ok := errors.AsType[*allocator.AdvancedError](err); !ok || moved.Got != old["order"].MaxID || moved.Seen != seen {
			t.Errorf("error %v", err)
		}
		if s := w.record("order"); s.MaxID != seen || s.Floor != 500 || s.Limit != 9000 || s.Version != 1 {
			t.Errorf("the record is %+v", s)
		}
		g.want("order", 1, seen, seen+9)
	})
}

// TestClaimRecorded: the record says who claimed a range, when, and with which step. What operators do keeps that.
func TestClaimRecorded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order"})
		var want allocator.Claim
		for i, run := range []string{"one", "two", "one"} {
			time.Sleep(time.Minute)
			first := 1 + 10*int64(i)
			want = allocator.Claim{First: first, Last: first + 9, Node: "node of " + run, Run: run, Step: 7, Time: allocator.Now()}
			w.join(run).want("order", 1, first, first+9)
			if s := w.record("order"); s.Last != want || s.Updated != want.Time {
				t.Errorf("the record is %+v, want the last claim %+v", s, want)
			}
		}
		to := int64(100)
		if _, s, err := w.join("three").Change(t.Context(), "order", allocator.Change{MaxID: &to}, false); err != nil || s.Last != want {
			t.Errorf("after a new max_id the record is %+v, %v", s, err)
		}
	})
}

// TestClaimUnreadable: a claim that cannot be read is none, and no error.
func TestClaimUnreadable(t *testing.T) {
	for text, want := range map[string]allocator.Claim{
		`{"first":"1","last":"10","node":"one","more":1}`:      {First: 1, Last: 10, Node: "one"},
		`{"first":"1","last":"10","node":"one","time":"noon"}`: {},
		`{"first":"1","last":10}`:                              {},
		`7`:                                                    {},
		`null`:                                                 {},
	} {
		got := allocator.Claim{Node: "before"}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s reads as %+v, %v; want %+v", text, got, err, want)
		}
	}
}

package allocator_test

import (
	"cmp"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestMerge (W4): each field of a record counts by itself, in whichever order records come.
func TestMerge(t *testing.T) {
	ruled := func(version, limit int64) allocator.Rules { return allocator.Rules{Version: version, Limit: limit} }
	for name, c := range map[string]struct {
		late  bool // the record is older than the one that is known
		edit  func(t *allocator.Tag)
		next  int64 // ID; of 3 to 20 that are in memory
		rules allocator.Rules
	}{
		"the same":                         {edit: func(*allocator.Tag) {}, next: 3, rules: ruled(5, 1000)},
		"a floor":                          {edit: func(t *allocator.Tag) { t.Floor = 15 }, next: 15, rules: ruled(5, 1000)},
		"a late floor":                     {late: true, edit: func(t *allocator.Tag) { t.Floor = 15 }, next: 15, rules: ruled(5, 1000)},
		"newer rules":                      {edit: func(t *allocator.Tag) { t.Rules = ruled(6, 2000) }, next: 3, rules: ruled(6, 2000)},
		"newer rules, late":                {late: true, edit: func(t *allocator.Tag) { t.Rules = ruled(6, 2000) }, next: 3, rules: ruled(6, 2000)},
		"older rules":                      {edit: func(t *allocator.Tag) { t.Rules = ruled(4, 2000) }, next: 3, rules: ruled(5, 1000)},
		"other rules of the same version":  {edit: func(t *allocator.Tag) { t.Rules = ruled(5, 2000) }, next: 3, rules: ruled(5, 2000)},
		"such rules, late":                 {late: true, edit: func(t *allocator.Tag) { t.Rules = ruled(5, 2000) }, next: 3, rules: ruled(5, 1000)},
		"a tombstone":                      {edit: func(t *allocator.Tag) { t.MaxID, t.Deleted = 21, true }, next: 21, rules: ruled(5, 1000)},
		"a tombstone from before, late":    {late: true, edit: func(t *allocator.Tag) { t.MaxID, t.Deleted = 15, true }, next: 15, rules: ruled(5, 1000)},
		"an end, which says nothing of it": {edit: func(t *allocator.Tag) { t.MaxID = 500 }, next: 3, rules: ruled(5, 1000)},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.numbers = nil
			w.make(allocator.Tag{Name: "order", Rules: ruled(5, 1000)})
			g := w.join("one")
			g.wantIDs("order", 2, 1)
			s := w.record("order")
			c.edit(&s.Tag)
			if s.Revision++; c.late {
				s.Revision = 1
			}
			k := g.Push(s)
			if s.Deleted && !c.late && g.Tags() > 0 {
				t.Error("a deleted tag stays in memory")
			}
			if k.End < 21 || k.Floor < s.Below() || k.Rules != c.rules && !s.Deleted {
				t.Errorf("it knows %+v", k)
			}
			g.wantIDs("order", 1, c.next)
			if _, rules := g.Forbids("order"); rules != c.rules {
				t.Errorf("the rules are %+v, want %+v", rules, c.rules)
			}
			if got := g.Heals(); got > 0 {
				t.Errorf("a push began to raise %d records", got)
			}
		})
	}
}

// TestHealed (W6, W4): a record that was set back below the mark, or has older rules, gets all that a generator knows,
// without a request. There is one alert, which is over, and the others hear of it.
func TestHealed(t *testing.T) {
	for name, c := range map[string]struct {
		order   allocator.Order
		restore func(w *world, g *gen, old map[string]allocator.Stored)
		heals   bool
		rules   string // of the operator; empty: a limit
	}{
		"set back, and nothing was ruled": {restore: func(w *world, _ *gen, old map[string]allocator.Stored) { w.records.Restore(old) }, heals: true, rules: `{}`},
		"set back":                        {restore: func(w *world, _ *gen, old map[string]allocator.Stored) { w.records.Restore(old) }, heals: true},
		"set back, strict":                {order: strict, restore: func(w *world, _ *gen, old map[string]allocator.Stored) { w.records.Restore(old) }, heals: true},
		"set back, and then written": {restore: func(w *world, _ *gen, old map[string]allocator.Stored) {
			w.records.Restore(old)
			w.write("order", func(s allocator.Stored) (allocator.Tag, error) { s.Description = "x"; return s.Tag, nil })
		}, heals: true},
		"a lower record with a higher revision": {restore: func(w *world, _ *gen, old map[string]allocator.Stored) {
			w.write("order", func(allocator.Stored) (allocator.Tag, error) { return old["order"].Tag, nil })
		}, heals: true},
		"only the rules": {restore: func(w *world, _ *gen, old map[string]allocator.Stored) {
			w.write("order", func(s allocator.Stored) (allocator.Tag, error) { s.Rules = old["order"].Rules; return s.Tag, nil })
		}, heals: true},
		"the store fails at first": {restore: func(w *world, g *gen, old map[string]allocator.Stored) {
			g.failing("swap", errAway)
			w.records.Restore(old)
			time.Sleep(10 * time.Second)
			g.on(nil, nil)
		}, heals: true},
		"another generator is faster": {restore: func(w *world, g *gen, old map[string]allocator.Stored) {
			g.on(atFirst("swap", func() { w.raise("order", 700, 700) }), nil)
			w.records.Restore(old)
		}, heals: true},
		"only a push": {restore: func(_ *world, g *gen, old map[string]allocator.Stored) {
			s := old["order"]
			s.Revision += 1000
			g.Push(s)
		}},
		"it is gone":    {restore: func(w *world, _ *gen, _ map[string]allocator.Stored) { w.records.Restore(nil) }},
		"it is damaged": {restore: func(w *world, _ *gen, _ map[string]allocator.Stored) { w.records.Spoil("order", allocator.ErrDamaged) }},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.numbers = nil
			w.make(allocator.Tag{Name: "order", Order: c.order})
			g := w.join("one").start()
			g.wantIDs("order", 1, 1)
			old := w.records.Snapshot()
			c.rules = cmp.Or(c.rules, `{"limit":"9000"}`)
			if err := change(allocator.Change{MaxID: new(int64(500)), RulesChange: changeOf(t, c.rules)})(g); err != nil {
				t.Fatal(err)
			}
			g.wantIDs("order", 1, 500)
			before, seen, pushes := w.record("order"), g.Seen("order"), len(g.pushes())
			c.restore(w, g, old)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			alerts := published[allocator.Regressed](&g.events)
			if !c.heals {
				if len(alerts) > 0 || len(g.pushes()) > pushes {
					t.Errorf("the alerts are %+v", alerts)
				}
				return
			}
			s := w.record("order")
			if s.MaxID < seen || c.order != strict && s.Floor < 500 || s.Rules != before.Rules {
				t.Errorf("the record is %+v, want all of %+v", s, before)
			}
			if len(alerts) != 1 || alerts[0].Action != allocator.Advanced || alerts[0].Seen != s.MaxID {
				t.Errorf("the alerts are %+v", alerts)
			}
			g.wantEpisodes(t, "regressed", 1, 1)
			got := g.pushes()[pushes:]
			if len(got) == 1 && got[0].Description != s.Description { // it was raised before it was written
				got[0].Description, got[0].Revision = s.Description, s.Revision
			}
			if len(got) != 1 || got[0] != s {
				t.Errorf("%+v was pushed, want %+v", got, s)
			}
		})
	}
}

// TestFloorOfATagThatIsNotInMemory: what a record says of a tag counts also if that was never used here. A record below
// it went back.
func TestFloorOfATagThatIsNotInMemory(t *testing.T) {
	for name, pushed := range map[string]allocator.Tag{
		"a floor":     {Name: "order", MaxID: 1, Step: 10, Floor: 5001},
		"a tombstone": {Name: "order", MaxID: 5001, Deleted: true},
		"an end":      {Name: "order", MaxID: 5001, Step: 10},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.numbers = nil
			w.make(allocator.Tag{Name: "order"})
			g := w.join("one")
			if k := g.Push(allocator.Stored{Tag: pushed}); k.End != 5001 || k.Floor != pushed.Below() {
				t.Errorf("it knows %+v", k)
			}
			g.wantIDs("order", 1, 5001)
		})
	}
}

// TestUnusable: a damaged record is an alert, and what is in memory stays. A record of a newer version may forbid it,
// so nothing is handed out here. Requests are refused at once.
func TestUnusable(t *testing.T) {
	for _, problem := range []error{allocator.ErrDamaged, allocator.ErrNewer} {
		inBubble(t, problem.Error(), func(t *testing.T) {
			w := newWorld(t)
			w.numbers = nil
			w.make(allocator.Tag{Name: "order"})
			w.make(allocator.Tag{Name: "other"})
			g := w.join("one").start()
			g.wantIDs("order", 1, 1)
			whole := w.record("order")
			for range 2 {
				w.records.Spoil("order", problem)
				synctest.Wait()
			}
			if got := published[allocator.Damaged](&g.events); len(got) != 1 || got[0].Tag != "order" || !errors.Is(got[0].Err, problem) {
				t.Errorf("the alerts are %+v", got)
			}
			if left, want := left(g.Allocator), map[bool]int64{true: 19, false: 0}[problem == allocator.ErrDamaged]; left != want {
				t.Errorf("%d IDs are in memory, want %d", left, want)
			}
			begin := time.Now()
			if _, err := g.Take(t.Context(), "order", 50); !errors.Is(err, problem) || !errors.Is(err, allocator.ErrUnavailable) || time.Since(begin) > 0 {
				t.Errorf("Take: %v after %v", err, time.Since(begin))
			}
			if f := g.Failing(); f.Tags != 1 || problem == allocator.ErrDamaged && f.Store != nil {
				t.Errorf("%+v; it is the tag's own trouble", f)
			}
			g.wantIDs("other", 1, 1)
			w.records.Restore(map[string]allocator.Stored{"order": whole})
			time.Sleep(2 * time.Second)
			g.wantEpisodes(t, "damaged", 0, 1)
			if _, err := g.Take(t.Context(), "order", 50); err != nil {
				t.Errorf("Take: %v", err)
			}
		})
	}
}

// TestTagsLost: where all records are lost, the tags of a database go on above all that was handed out, with their
// rules, and without an operator. All others wait for one: no request hears that such a tag is unknown, and none is
// created at 1.
func TestTagsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order"})
		w.make(allocator.Tag{Name: "paused"})
		w.make(allocator.Tag{Name: "idle", MaxID: 51})
		w.make(allocator.Tag{Name: "invoice", Order: strict})
		g := w.join("one").start()
		for _, tag := range []string{"order", "paused", "invoice"} {
			g.wantIDs(tag, 1, 1)
		}
		if _, _, err := g.Change(t.Context(), "paused", allocator.Change{RulesChange: changeOf(t, `{"paused":true}`)}, false); err != nil {
			t.Fatal(err)
		}
		polls(1)
		seen := g.Seen("order")
		w.records.Lose()
		w.records.SetErr(allocator.ErrTagsLost)
		g.wantIDs("order", 19, 2)
		g.wantIDs("order", 1, seen)
		if _, err := g.Take(t.Context(), "invoice", 1); !errors.Is(err, allocator.ErrUnavailable) {
			t.Errorf("a strict tag: %v", err)
		}
		if _, err := g.Take(t.Context(), "unknown", 1); !errors.Is(err, allocator.ErrTagsLost) {
			t.Errorf("a name that may have been lost: %v", err)
		}
		if s, err := g.Create(t.Context(), strictTag("invoice"), 0, false); !errors.Is(err, allocator.ErrTagsLost) {
			t.Errorf("Create: %+v, %v", s, err)
		}
		polls(2) // also what is not asked for has its record again
		for tag, end := range map[string]int64{"idle": 51, "paused": 21} {
			if s := w.records.Snapshot()[tag]; s.MaxID < end || s.Paused != (tag == "paused") {
				t.Errorf("the record of %s is %+v", tag, s)
			}
		}
		if s, ok := w.records.Snapshot()["invoice"]; ok {
			t.Errorf("a strict tag has the record %+v", s)
		}
		if n := len(published[allocator.Regressed](&g.events)); n > 0 {
			t.Errorf("%d alerts on single tags", n)
		}
		if s, err := g.Create(t.Context(), allocator.Tag{Name: "invoice", MaxID: 2, Order: strict}, 0, false); err != nil || s.MaxID != 2 {
			t.Errorf("an operator says how far it is: %+v, %v", s, err)
		}
		w.records.SetErr(nil)
		time.Sleep(2 * time.Second)
		g.wantIDs("invoice", 1, 2)
	})
}

// TestLearnt: a start goes on with the step of the generator that claimed last, if that was within an hour, also where
// tags are loaded ahead. A tag whose step is as large learns nothing.
func TestLearnt(t *testing.T) {
	for name, c := range map[string]struct {
		ago   time.Duration
		step  int64 // of the record
		ahead bool
		first int64 // the size of the first range
		want  []int64
	}{
		"just now":             {time.Minute, 10, false, 1, []int64{640, 640, 1280}},
		"loaded ahead":         {time.Minute, 10, true, 1, []int64{640, 640, 1280}},
		"a large first batch":  {time.Minute, 10, false, 100, []int64{640, 640, 1280}},
		"an hour ago":          {time.Hour, 10, false, 1, []int64{10, 10, 20}},
		"the step was changed": {time.Minute, 1000, false, 1, []int64{1000, 1000, 2000}},
		"a larger one":         {time.Minute, 10, false, 5000, []int64{5000, 640, 640}},
		"more than may be":     {time.Minute, 10, false, 1, []int64{500, 500, 500}},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, c.step)
			s.write("order", func(old allocator.Stored) (allocator.Tag, error) {
				return old.Claim(allocator.Claim{First: 1, Last: 640, Run: "before", Step: 640, Time: time.Now()})
			})
			time.Sleep(c.ago)
			var r events
			cfg := allocator.Config{Records: s, Notify: r.notify, LoadAhead: c.ahead}
			if name == "more than may be" {
				cfg.MaxStep = 500
			}
			a := start(t, cfg)
			synctest.Wait()
			for next := c.first; len(published[allocator.Refilled](&r)) < len(c.want); next = 1 {
				take(t, a, next)
			}
			var sizes []int64
			for _, e := range published[allocator.Refilled](&r)[:len(c.want)] {
				sizes = append(sizes, e.Len())
			}
			if !slices.Equal(sizes, c.want) {
				t.Errorf("the ranges have %v IDs, want %v", sizes, c.want)
			}
			if last, err := s.Load(t.Context(), "order"); err != nil || last.Last.Step < slices.Min(c.want) {
				t.Errorf("the record is %+v", last)
			}
		})
	}
}

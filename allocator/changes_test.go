package allocator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// TestCreate: a tag begins above all that anybody knows of the name, and has its row before it is served.
func TestCreate(t *testing.T) {
	for name, c := range map[string]struct {
		order  allocator.Order
		before func(w *world, g *gen)
		from   int64 // max_id of the command
		seen   int64 // by who sends it
		want   int64 // 0: an error
		err    error
	}{
		"a new name":                     {want: 1},
		"a max_id":                       {from: 7, want: 7},
		"another generator knows it":     {before: func(_ *world, g *gen) { g.known.End = 50 }, want: 50},
		"who asks knows it":              {seen: 50, want: 50},
		"the index knows it":             {before: func(_ *world, g *gen) { g.index.Observe("order", 50) }, want: 50},
		"a tombstone":                    {before: func(w *world, _ *gen) { w.make(allocator.Tag{Name: "order", MaxID: 50}); w.bury("order", 60) }, want: 60},
		"a tombstone that was set back":  {before: func(w *world, g *gen) { w.make(allocator.Tag{Name: "order"}); w.bury("order", 60); g.known.End = 90 }, want: 90},
		"the mark of a deletion":         {before: func(w *world, _ *gen) { w.mark("order", 50, allocator.KindTrend) }, want: 50},
		"the mark of a strict tag":       {order: strict, before: func(w *world, _ *gen) { w.mark("order", 50, allocator.KindStrict) }, want: 50},
		"the name was strict":            {before: func(w *world, _ *gen) { w.mark("order", 50, allocator.KindStrict) }, err: allocator.ErrConflict},
		"the name was opaque":            {order: strict, before: func(w *world, _ *gen) { w.mark("order", 50, allocator.KindOpaque) }, err: allocator.ErrConflict},
		"a strict tombstone":             {before: func(w *world, _ *gen) { w.make(allocator.Tag{Name: "order", Order: strict}); w.bury("order", 0) }, err: allocator.ErrConflict},
		"a row, which is not strict":     {order: strict, before: func(w *world, _ *gen) { w.sql("order", 5) }, err: allocator.ErrConflict},
		"a row without a record":         {before: func(w *world, _ *gen) { w.sql("order", 5) }, err: allocator.ErrExists},
		"a tag":                          {before: func(w *world, _ *gen) { w.make(allocator.Tag{Name: "order"}) }, err: allocator.ErrExists},
		"the tags are lost":              {before: func(w *world, _ *gen) { w.records.SetErr(allocator.ErrTagsLost) }, err: allocator.ErrTagsLost},
		"lost, and the max_id is known":  {before: func(w *world, _ *gen) { w.records.SetErr(allocator.ErrTagsLost) }, from: 50, want: 50},
		"the store has another trouble":  {before: func(w *world, _ *gen) { w.records.SetErr(errAway) }, from: 50, err: errAway},
		"a generator must answer":        {before: func(_ *world, g *gen) { g.silent = errAway }, err: errAway},
		"the database is away":           {before: func(_ *world, g *gen) { g.failing("peek", errAway) }, err: errAway},
		"a damaged record":               {before: func(w *world, _ *gen) { w.records.Spoil("order", allocator.ErrDamaged) }, err: allocator.ErrDamaged},
		"damaged, and the max_id known":  {before: func(w *world, g *gen) { w.records.Spoil("order", allocator.ErrDamaged); g.known.End = 60 }, from: 50, want: 60},
		"a record of a newer version":    {before: func(w *world, _ *gen) { w.records.Spoil("order", allocator.ErrNewer) }, from: 50, err: allocator.ErrNewer},
		"SQL makes the row meanwhile":    {before: func(w *world, g *gen) { g.on(nil, atFirst("swap", func() { w.sql("order", 5) })) }, from: 50, want: 50},
		"another one creates it as well": {before: func(w *world, g *gen) { g.on(nil, atFirst("load", func() { w.make(allocator.Tag{Name: "order"}) })) }, err: allocator.ErrExists},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			g := w.join("one")
			if c.before != nil {
				c.before(w, g)
			}
			tag := allocator.Tag{Name: "order", MaxID: c.from, Step: 10, Order: c.order}
			if c.order == strict {
				tag.Step = 0
			}
			s, err := g.Create(t.Context(), tag, c.seen, false)
			if c.want == 0 {
				if !errors.Is(err, c.err) {
					t.Errorf("%+v, error %v, want %v", s, err, c.err)
				}
				return
			}
			if err != nil || s.MaxID != c.want || s != w.record("order") {
				t.Fatalf("%+v, %v; want max_id %d", s, err, c.want)
			}
			row, trend := w.row("order"), c.order == allocator.Trend
			if (row.MaxID == c.want) != trend || trend && row.Step != 10 || !trend && (row.Mark != c.want || row.Kind != s.Kind()) {
				t.Errorf("the row is %+v", row)
			}
			g.wantIDs("order", 1, c.want)
		})
	}
}

// bury makes the record of a tag a tombstone.
func (w *world) bury(tag string, end int64) {
	w.write(tag, func(s allocator.Stored) (allocator.Tag, error) { return s.Delete(end) })
	w.numbers.DeleteRow(tag)
}

func (w *world) mark(tag string, mark int64, kind string) {
	if err := w.numbers.Mark(w.t.Context(), tag, mark, kind); err != nil {
		w.t.Error(err)
	}
}

// sql makes a row by SQL, or changes it.
func (w *world) sql(tag string, maxID int64) {
	w.numbers.SetRow(allocator.Row{Name: tag, MaxID: maxID, Step: 10})
}

// TestCreateAgain: the rules of a tag that is made again count everywhere, though generators remember older ones.
func TestCreateAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newWorld(t).join("one")
		if s, err := g.Create(t.Context(), allocator.Tag{Name: "other", Step: 10}, 0, false); err != nil || s.Version != 0 {
			t.Errorf("a new tag has the rules %+v, %v", s.Rules, err)
		}
		g.known = allocator.Known{Rules: allocator.Rules{Version: 7, Paused: true}}
		if s, err := g.Create(t.Context(), allocator.Tag{Name: "order", Step: 10}, 0, false); err != nil || s.Version != 8 || s.Paused {
			t.Errorf("the rules are %+v, %v", s.Rules, err)
		}
	})
}

// TestCreateOpaque: an opaque tag has its key before its record. A name keeps its domain and key. No secret for the
// keys is made while anything shows that there was one.
func TestCreateOpaque(t *testing.T) {
	opaqueTag := func(name string) allocator.Tag { return allocator.Tag{Name: name, Order: opaque9, Step: 10, MaxID: 1} }
	other := opaqueTag("other")
	for name, c := range map[string]struct {
		before func(w *world, g *gen)
		secret bool
		maxID  int64
		err    string // a part of it; empty: the tag is created
	}{
		"the first opaque tag": {before: func(w *world, _ *gen) { w.make(allocator.Tag{Name: "plain"}) }},
		"there is another one": {before: func(w *world, _ *gen) { w.make(other) }, err: "lost: other is or was opaque"},
		"there was another one": {before: func(w *world, _ *gen) {
			w.make(other)
			w.write("other", func(s allocator.Stored) (allocator.Tag, error) { return s.Delete(0) })
		}, err: "lost: other is or was opaque"},
		"the database has a mark": {before: func(w *world, _ *gen) { w.mark("other", 50, allocator.KindOpaque) },
			err: "lost: the database has a mark of the opaque tag other"},
		"a record cannot be read": {before: func(w *world, _ *gen) {
			w.make(allocator.Tag{Name: "bad"})
			w.records.Spoil("bad", allocator.ErrDamaged)
		},
			err: "lost: records of tags that cannot be read: 1"},
		"the records are lost": {before: func(w *world, _ *gen) { w.records.SetErr(allocator.ErrTagsLost) }, maxID: 9, err: "all tags are lost"},

		"another generator knows the name":           {before: func(_ *world, g *gen) { g.known.End = 50 }, secret: true, err: "its record is lost"},
		"it knows the name, and so does an operator": {before: func(_ *world, g *gen) { g.known.End = 50 }, secret: true, maxID: 60},
		"and there is no secret":                     {before: func(_ *world, g *gen) { g.known.End = 50 }, maxID: 60, err: "lost: IDs of new were"},
		"it knows the domain": {before: func(_ *world, g *gen) { g.known = allocator.Known{End: 50, Order: opaque9} },
			secret: true},
		"it knows another domain": {before: func(_ *world, g *gen) { g.known = allocator.Known{End: 50, Order: "opaque-53"} },
			secret: true, maxID: 60, err: "an opaque tag with the domain 53"},
		"this one has seen another domain": {before: func(w *world, _ *gen) {
			w.make(allocator.Tag{Name: "new", Order: "opaque-53", Step: 10})
			synctest.Wait()
			w.records.Lose()
		}, secret: true, maxID: 60, err: "an opaque tag with the domain 53"},
		"it knows another kind": {before: func(_ *world, g *gen) { g.known = allocator.Known{End: 50, Order: strict} },
			secret: true, maxID: 60, err: "a tag of strict order"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				g := w.join("one").start()
				c.before(w, g)
				g.secret = c.secret
				tag := opaqueTag("new")
				tag.MaxID = max(c.maxID, 1)
				made, err := g.Create(t.Context(), tag, 0, false)
				switch {
				case c.err != "":
					if err == nil || !strings.Contains(err.Error(), c.err) || g.secret != c.secret {
						t.Errorf("%+v, %v; want %q", made, err, c.err)
					}
					return
				case err != nil || made.KeyID != "key":
					t.Fatalf("%+v, %v", made, err)
				}
				if _, err := g.Delete(t.Context(), "new"); err != nil {
					t.Fatal(err)
				}
				g.keys, g.secret = allocator.ErrDamaged, false
				if made, err := g.Create(t.Context(), opaqueTag("new"), 0, false); !errors.Is(err, allocator.ErrDamaged) || g.secret {
					t.Errorf("again, without its key: %+v, %v", made, err)
				}
				g.keys = nil
				if again, err := g.Create(t.Context(), opaqueTag("new"), 0, false); err != nil || again.KeyID != "key" || g.secret {
					t.Errorf("again: %+v, %v", again, err)
				}
			})
		})
	}
}

// TestOrderOfWrites: what each command writes, in which order. A crash, or a lost answer, between two of them leaves a
// tag from which no ID comes twice, and the command can be sent again.
func TestOrderOfWrites(t *testing.T) {
	to, step, text := int64(500), int64(20), "text"
	for name, c := range map[string]struct {
		order   allocator.Order
		do      func(g *gen) error
		writes  []string
		again   error // of the command when it is sent again
		deletes bool
	}{
		"create": {do: func(g *gen) error {
			_, err := g.Create(g.w.t.Context(), allocator.Tag{Name: "new", Step: 10}, 0, false)
			return err
		}, writes: []string{"swap", "add"}, again: allocator.ErrExists},
		"create strict": {do: func(g *gen) error {
			_, err := g.Create(g.w.t.Context(), strictTag("new"), 0, false)
			return err
		}, writes: []string{"swap"}},
		"max_id":      {do: change(allocator.Change{MaxID: &to}), writes: []string{"raise", "swap"}},
		"step":        {do: change(allocator.Change{Step: &step}), writes: []string{"raise", "swap"}},
		"description": {do: change(allocator.Change{Description: &text}), writes: []string{"raise", "swap"}},
		"a rule":      {do: change(allocator.Change{RulesChange: idspace.RulesChange{Paused: new(bool)}}), writes: []string{"swap"}},
		"strict":      {order: strict, do: change(allocator.Change{MaxID: &to}), writes: []string{"swap"}},
		"delete": {do: func(g *gen) error { _, err := g.Delete(g.w.t.Context(), "order"); return err },
			writes: []string{"remove", "swap"}, deletes: true},
		"delete strict": {order: strict, do: func(g *gen) error { _, err := g.Delete(g.w.t.Context(), "order"); return err },
			writes: []string{"swap"}, deletes: true},
	} {
		for at := range len(c.writes) + 1 { // which one fails, if any
			for _, done := range []bool{false, true} {
				inBubble(t, fmt.Sprint(name, " ", at, " ", done), func(t *testing.T) {
					w := newWorld(t)
					w.make(allocator.Tag{Name: "order", MaxID: 11, Order: c.order})
					one, two := w.join("one"), w.join("two")
					two.wantIDs("order", 1, 11)
					writes := 0
					fail := func(call string) error {
						if call != "load" && call != "peek" && call != "mark" { // the poll repeats that of a strict tag
							if writes++; writes == at+1 {
								return errLost
							}
						}
						return nil
					}
					if done {
						one.on(nil, fail)
					} else {
						one.on(fail, nil)
					}
					err := c.do(one)
					got := slices.DeleteFunc(one.called(true), func(call string) bool { return call == "mark" })
					if !slices.Equal(got, c.writes[:min(at+1, len(c.writes))]) || (err == nil) != (at == len(c.writes)) {
						t.Fatalf("the writes are %v, want %v; %v", got, c.writes, err)
					}
					one.on(nil, nil)
					if err := c.do(one); at < len(c.writes) && err != nil && !errors.Is(err, c.again) && !(done && at == len(c.writes)-1) {
						t.Errorf("sent again: %v", err)
					}
					end := two.Seen("order")
					if _, err := two.Take(t.Context(), "order", 100); (err != nil) != c.deletes {
						t.Errorf("Take: %v", err)
					}
					if s := w.record("order"); s.MaxID < end || s.Deleted != c.deletes {
						t.Errorf("the record is %+v, and all below %d are in use", s, end)
					}
					if c.again != nil {
						one.wantIDs("new", 1, 1)
					}
				})
			}
		}
	}
}

func change(c allocator.Change) func(g *gen) error {
	return func(g *gen) error { _, _, err := g.Change(g.w.t.Context(), "order", c, false); return err }
}

// TestChange: what an operator changes is in force here when the command returns.
func TestChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order"})
		g := w.join("one")
		g.wantIDs("order", 1, 1)
		to, step := int64(500), int64(20)
		was, is, err := g.Change(t.Context(), "order", allocator.Change{MaxID: &to, Step: &step}, false)
		if err != nil || was.MaxID != 21 || is.MaxID != 500 || is.Floor != 500 || is.Step != 20 || is != w.record("order") {
			t.Errorf("%+v became %+v, %v", was, is, err)
		}
		if row := w.row("order"); row.MaxID != 500 || row.Step != 20 {
			t.Errorf("the row is %+v", row)
		}
		g.wantIDs("order", 1, 500)
		if _, _, err := g.Change(t.Context(), "order", allocator.Change{MaxID: &to}, false); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("max_id moved back: %v", err)
		}
		far := int64(1 << 62)
		for _, force := range []bool{false, true} {
			if _, _, err := g.Change(t.Context(), "order", allocator.Change{MaxID: &far}, force); (err == nil) != force {
				t.Errorf("what looks like a typo, with force %v: %v", force, err)
			}
		}
		w.sql("by.hand", 30)
		if _, s, err := g.Change(t.Context(), "by.hand", allocator.Change{Step: &step}, false); err != nil || s.MaxID != 30 || s.Step != 20 {
			t.Errorf("a row without a record: %+v, %v", s, err)
		}
		if _, _, err := g.Change(t.Context(), "unknown", allocator.Change{Step: &step}, false); !errors.Is(err, allocator.ErrUnknownTag) {
			t.Errorf("no tag: %v", err)
		}
		w.records.Spoil("order", allocator.ErrDamaged)
		if _, _, err := g.Change(t.Context(), "order", allocator.Change{Step: &step}, false); !errors.Is(err, allocator.ErrDamaged) {
			t.Errorf("a damaged record: %v", err)
		}
	})
}

// TestChangeOfOldRules: after a restore of the records an operator's change is based on the rules that are in force,
// and counts.
func TestChangeOfOldRules(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order"})
		g := w.join("one")
		g.wantIDs("order", 1, 1)
		backup := w.records.Snapshot()
		for _, text := range []string{`{"limit":"500"}`, `{"quota":{"per_second":5}}`} {
			if _, _, err := g.Change(t.Context(), "order", allocator.Change{RulesChange: changeOf(t, text)}, false); err != nil {
				t.Fatal(err)
			}
		}
		w.records.Restore(backup)
		_, s, err := g.Change(t.Context(), "order", allocator.Change{RulesChange: changeOf(t, `{"paused":true}`)}, false)
		if err != nil || !s.Paused || s.Limit != 500 || s.Quota.PerSecond != 5 || s.Version != 3 {
			t.Errorf("the rules are %+v, %v", s.Rules, err)
		}
		if _, err := g.Take(t.Context(), "order", 1); !errors.Is(err, allocator.ErrPaused) {
			t.Errorf("Take: %v", err)
		}
	})
}

// TestDelete: the tombstone and the mark in the database are above all that anybody may hold.
func TestDelete(t *testing.T) {
	for name, c := range map[string]struct {
		row, mark, seen, want int64
	}{"the record": {11, 0, 0, 21}, "the row": {50, 0, 0, 50}, "an old mark": {11, 60, 0, 60}, "the index": {11, 0, 70, 70}} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.make(allocator.Tag{Name: "order", MaxID: 21})
			w.numbers.SetRow(allocator.Row{Name: "order", MaxID: c.row, Step: 10})
			if c.mark > 0 {
				w.mark("order", c.mark, allocator.KindTrend)
			}
			g := w.join("one")
			g.index.Observe("order", c.seen)
			tomb, err := g.Delete(t.Context(), "order")
			row := w.row("order")
			if err != nil || !tomb.Deleted || tomb.MaxID != c.want || row.MaxID != 0 || row.Mark != c.want || row.Kind != allocator.KindTrend {
				t.Errorf("%+v, %v; the mark is %+v, want %d", tomb, err, row, c.want)
			}
			if _, err := g.Delete(t.Context(), "order"); !errors.Is(err, allocator.ErrDeleted) {
				t.Errorf("again: %v", err)
			}
			if s, err := g.Create(t.Context(), allocator.Tag{Name: "order", Step: 10}, 0, false); err != nil || s.MaxID != c.want {
				t.Errorf("created again: %+v, %v", s, err)
			}
		})
	}
}

// TestCommandsRace: a change that another one has overtaken is made again, on what is there then. What was read long
// ago is read again: the process may have stood still. A database that is far away does not make it repeat the change.
func TestCommandsRace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order"})
		one, two := w.join("one"), w.join("two")
		step, text := int64(20), "text"
		one.on(atFirst("swap", func() {
			if err := change(allocator.Change{Description: &text})(two); err != nil {
				t.Error(err)
			}
		}), nil)
		_, s, err := one.Change(t.Context(), "order", allocator.Change{Step: &step}, false)
		if err != nil || s.Step != 20 || s.Description != "text" {
			t.Errorf("%+v, %v", s, err)
		}
		backup := w.records.Snapshot()
		one.on(atFirst("raise", func() {
			old := w.record("order")
			w.records.Restore(backup)
			old.Description = "restored" // at the same revision
			w.records.Restore(map[string]allocator.Stored{"order": old})
			time.Sleep(1100 * time.Millisecond)
		}), nil)
		if _, s, err := one.Change(t.Context(), "order", allocator.Change{Step: &step}, false); err != nil || s.Description != "restored" {
			t.Errorf("%+v, %v", s, err)
		}
		one.on(func(string) error { return sleep(t.Context(), 400*time.Millisecond) }, nil)
		one.called(false)
		_, err = one.Delete(t.Context(), "order")
		if got := one.called(false); err != nil || !slices.Equal(got, []string{"load", "peek", "remove", "load", "swap"}) {
			t.Errorf("%v, %v", got, err)
		}
	})
}

package allocator_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// polls lets that many polls of the database happen.
func polls(n int) {
	time.Sleep(time.Duration(n) * allocator.DefaultRefresh)
	synctest.Wait()
}

// TestPoll: what a poll makes of a row and a record that do not fit, after how many polls. Nothing else is written.
func TestPoll(t *testing.T) {
	deleted := func(end int64) func(w *world) { return func(w *world) { w.bury("order", end) } }
	none := func(*world) {}
	for name, c := range map[string]struct {
		there func(w *world) // before the first poll; nil: a tag at 51
		act   func(w *world) // after it
		g     func(g *gen)   // what the generator knows
		after int            // polls; before the last one nothing is changed; 0: nothing ever is
		end   int64          // of the record
		floor int64
		dead  bool
		row   allocator.Row // its Name, and a Step of 10, are filled in; of no row: the mark
	}{
		"P1 a new row":             {there: none, act: func(w *world) { w.sql("order", 30) }, after: 1, end: 30, row: allocator.Row{MaxID: 30}},
		"P1 a row at 0, as Leaf's": {there: none, act: func(w *world) { w.sql("order", 1) }, after: 1, end: 1, row: allocator.Row{MaxID: 1}},
		"P1 it was deleted before": {there: none, act: func(w *world) { w.mark("order", 70, "trend"); w.sql("order", 30) }, after: 1, end: 70, row: allocator.Row{MaxID: 70, Mark: 70, Kind: "trend"}},
		"P1 others know it":        {there: none, act: func(w *world) { w.sql("order", 30) }, g: func(g *gen) { g.known = allocator.Known{End: 80, Floor: 75} }, after: 1, end: 80, floor: 75, row: allocator.Row{MaxID: 80}},
		"P1 the index knows it":    {there: none, act: func(w *world) { w.sql("order", 30) }, g: func(g *gen) { g.index.Observe("order", 90) }, after: 1, end: 90, row: allocator.Row{MaxID: 90}},
		"P1 the name was strict":   {there: none, act: func(w *world) { w.mark("order", 70, "strict"); w.sql("order", 30) }, row: allocator.Row{MaxID: 30, Mark: 70, Kind: "strict"}},
		"P1 the name was opaque":   {there: none, act: func(w *world) { w.mark("order", 70, "opaque"); w.sql("order", 30) }, row: allocator.Row{MaxID: 30, Mark: 70, Kind: "opaque"}},
		"P1 the step is damaged": {there: none, act: func(w *world) {
			w.numbers.SetRow(allocator.Row{Name: "order", MaxID: 30, Step: -1, Problem: allocator.ErrDamaged})
		}, row: allocator.Row{MaxID: 30, Step: -1}},
		"P1 others do not answer": {there: none, act: func(w *world) { w.sql("order", 30) }, g: func(g *gen) { g.silent = errAway }, row: allocator.Row{MaxID: 30}},
		"P1 the records are set back": {there: func(w *world) { w.make(allocator.Tag{Name: "order", MaxID: 51}) }, act: func(w *world) {
			backup := w.records.Snapshot()
			delete(backup, "order")
			w.records.Restore(backup)
		}, after: 1, end: 51, row: allocator.Row{MaxID: 51}},
		"P2 the row is gone":         {act: func(w *world) { w.numbers.DeleteRow("order") }, after: 2, end: 51, dead: true, row: allocator.Row{Mark: 51, Kind: "trend"}},
		"P2 more is in use":          {act: func(w *world) { w.numbers.DeleteRow("order") }, g: func(g *gen) { g.index.Observe("order", 90) }, after: 2, end: 90, dead: true, row: allocator.Row{Mark: 90, Kind: "trend"}},
		"P2 it has an older mark":    {act: func(w *world) { w.mark("order", 20, "trend"); w.numbers.DeleteRow("order") }, after: 2, end: 51, dead: true, row: allocator.Row{Mark: 51, Kind: "trend"}},
		"P2 it is back":              {act: func(w *world) { w.numbers.DeleteRow("order"); polls(1); w.sql("order", 51) }, end: 51, row: allocator.Row{MaxID: 51}},
		"P3 alive again":             {there: func(w *world) { w.make(allocator.Tag{Name: "order", MaxID: 51}); w.bury("order", 60) }, act: func(w *world) { w.sql("order", 5) }, after: 1, end: 60, floor: 60, row: allocator.Row{MaxID: 60, Mark: 60, Kind: "trend"}},
		"P3 above":                   {there: func(w *world) { w.make(allocator.Tag{Name: "order"}); deleted(60)(w) }, act: func(w *world) { w.sql("order", 99) }, after: 1, end: 99, floor: 99, row: allocator.Row{MaxID: 99, Mark: 60, Kind: "trend"}},
		"P3 the mark is above":       {there: func(w *world) { w.make(allocator.Tag{Name: "order"}); deleted(60)(w); w.mark("order", 70, "trend") }, act: func(w *world) { w.sql("order", 5) }, after: 1, end: 70, floor: 70, row: allocator.Row{MaxID: 70, Mark: 70, Kind: "trend"}},
		"P4 moved up by SQL":         {act: func(w *world) { w.sql("order", 500) }, after: 2, end: 500, row: allocator.Row{MaxID: 500}},
		"P4 claimed meanwhile":       {act: func(w *world) { w.sql("order", 500); polls(1); w.raise("order", 500, 0) }, end: 500, row: allocator.Row{MaxID: 500}},
		"P5 it forgot":               {act: func(w *world) { w.sql("order", 20) }, after: 1, end: 51, row: allocator.Row{MaxID: 51}},
		"P5 it forgot what is known": {act: func(w *world) { w.sql("order", 51) }, g: func(g *gen) { g.index.Observe("order", 90) }, after: 1, end: 51, row: allocator.Row{MaxID: 90}},
		"P6 a strict tag":            {there: none, act: func(w *world) { w.make(allocator.Tag{Name: "order", MaxID: 51, Order: strict}) }, after: 1, end: 51, floor: 51, row: allocator.Row{Mark: 51, Kind: "strict"}},
		"P6 an opaque tag":           {there: none, act: func(w *world) { w.make(allocator.Tag{Name: "order", MaxID: 51, Step: 10, Order: opaque9}) }, after: 1, end: 51, floor: 51, row: allocator.Row{Mark: 51, Kind: "opaque"}},
		"P6 a tombstone":             {act: deleted(60), after: 1, end: 60, dead: true, row: allocator.Row{Mark: 60, Kind: "trend"}},
		"P6 another kind": {there: none, act: func(w *world) {
			w.mark("order", 70, "trend")
			w.make(allocator.Tag{Name: "order", MaxID: 51, Order: strict})
		}, after: 1, end: 51, floor: 51, row: allocator.Row{Mark: 70, Kind: "strict"}},
		"P6 below": {there: none, act: func(w *world) {
			w.mark("order", 5, "strict")
			w.make(allocator.Tag{Name: "order", MaxID: 51, Order: strict})
		}, after: 1, end: 51, floor: 51, row: allocator.Row{Mark: 51, Kind: "strict"}},
		"P6 a row has a strict name": {there: none, act: func(w *world) { w.make(allocator.Tag{Name: "order", MaxID: 51, Order: strict}); w.sql("order", 7) }, after: 1, end: 51, floor: 51, row: allocator.Row{MaxID: 7, Mark: 51, Kind: "strict"}},
		"a damaged record":           {there: none, act: func(w *world) { w.sql("order", 30); w.records.Spoil("order", allocator.ErrDamaged) }, row: allocator.Row{MaxID: 30}},
		"a row that cannot be read": {act: func(w *world) {
			w.numbers.SetRow(allocator.Row{Name: "order", MaxID: 60, Step: -1, Problem: allocator.ErrDamaged})
		}, end: 51, row: allocator.Row{MaxID: 60, Step: -1}},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			if c.there == nil {
				w.make(allocator.Tag{Name: "order", MaxID: 51})
				c.floor = max(c.floor, 51)
			} else {
				c.there(w)
			}
			for _, other := range []string{"a", "b"} { // so that no row vanishes with most others
				w.make(allocator.Tag{Name: other})
			}
			time.Sleep(time.Hour)
			g := w.join("one").start()
			time.Sleep(time.Second) // the first poll is over
			c.act(w)
			synctest.Wait()
			if c.g != nil {
				c.g(g)
			}
			record, row := w.records.Snapshot()["order"], w.row("order")
			for i := 1; i < c.after; i++ {
				polls(1)
				if now := w.row("order"); now != row || w.records.Snapshot()["order"] != record {
					t.Errorf("too early: %+v, %+v", w.records.Snapshot()["order"], now)
				}
			}
			polls(1)
			s := w.records.Snapshot()["order"]
			if s.MaxID != c.end || s.Floor != c.floor && !c.dead || s.Deleted != c.dead {
				t.Errorf("the record is %+v, want it to end at %d, the floor %d, deleted: %v", s, c.end, c.floor, c.dead)
			}
			if mark := w.row("order").Mark; c.dead && mark != c.end { // written before the tombstone
				t.Errorf("the mark is %d", mark)
			}
			polls(5) // a row below a new record is raised, and then nothing changes
			got := w.row("order")
			if got.Problem = nil; got.MaxID > 0 && c.row.Step == 0 {
				c.row.Step = 10
			}
			if c.row.Name = "order"; got != c.row {
				t.Errorf("the row is %+v, want %+v", got, c.row)
			}
			if now := w.records.Snapshot()["order"]; now != s {
				t.Errorf("the record was %+v, and later it is %+v", s, now)
			}
			g.called(true)
			if polls(3); len(g.called(true)) > 0 && g.silent == nil {
				t.Error("there are writes, and nothing changes")
			}
		})
	}
}

// TestPollRises (P4): a row that moves on and on raises the record to where it was a poll ago. Above may be ranges that
// are about to be claimed.
func TestPollRises(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order"})
		w.join("one").start()
		time.Sleep(time.Second)
		for i, want := range []int64{1, 1000, 2000, 3000} {
			w.sql("order", int64(i+1)*1000)
			if polls(1); w.record("order").MaxID != want {
				t.Errorf("after %d polls the record is %+v, want %d", i+1, w.record("order"), want)
			}
		}
	})
}

// TestPollAlerts: a database that went backwards is one alert, which is over. A row with a strict tag's name is one,
// until it is gone.
func TestPollAlerts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order", MaxID: 51})
		w.make(allocator.Tag{Name: "invoice", Order: strict})
		g := w.join("one").start()
		polls(1)
		w.sql("order", 20)
		w.sql("invoice", 20)
		polls(5)
		want := allocator.Regressed{Tag: "order", Got: 20, Seen: 51, Action: allocator.Advanced}
		if got := published[allocator.Regressed](&g.events); len(got) != 1 || got[0] != want {
			t.Errorf("the alerts are %+v", got)
		}
		g.wantEpisodes(t, "regressed", 1, 1)
		if got := published[allocator.Shadowed](&g.events); len(got) != 1 || got[0].Tag != "invoice" {
			t.Errorf("the alerts are %+v", got)
		}
		g.wantIDs("invoice", 1, 1)
		w.numbers.DeleteRow("invoice")
		polls(5)
		g.wantEpisodes(t, "shadowed", 0, 1)
	})
}

// TestPollLeads: one generator polls for all. One that takes over begins to count from there.
func TestPollLeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order"})
		time.Sleep(time.Hour)
		g := w.join("one").start()
		polls(1)
		row := w.row("order")
		w.numbers.DeleteRow("order")
		polls(1) // it is missing
		g.lead(false)
		w.sql("by.hand", 30)
		w.numbers.SetRow(row)
		polls(5)
		if s := w.records.Snapshot()["by.hand"]; s.Revision != 0 {
			t.Errorf("a generator that does not lead made %+v", s)
		}
		w.numbers.DeleteRow("order")
		g.lead(true)
		polls(1)
		if s := w.record("order"); s.Deleted {
			t.Errorf("what it saw before it led again counts: %+v", s)
		}
		if s := w.record("by.hand"); s.MaxID != 30 {
			t.Errorf("the record is %+v", s)
		}
	})
}

// TestPollLooksAgain: what was found while all rows were read may be old. Each tag is looked at again, and written only
// as it was then.
func TestPollLooksAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order", MaxID: 51})
		w.make(allocator.Tag{Name: "other"})
		two := w.join("two")
		g := w.join("one").start()
		polls(1)
		w.sql("order", 20)                                                            // a replica that is behind, say
		g.on(atFirst("peek", func() { w.sql("order", 51) }), atFirst("peek", func() { // just after the row was read
			two.want("order", 1, 51, 60)
			time.Sleep(time.Millisecond) // and the watch shows it
		}))
		polls(2)
		if n := len(published[allocator.Regressed](&g.events)); n > 0 || w.record("order").MaxID != 61 {
			t.Errorf("%d alerts on a row that is well; the record is %+v", n, w.record("order"))
		}
		time.Sleep(time.Hour)
		w.numbers.DeleteRow("order")
		g.on(atFirst("mark", func() { // between the row and the record
			w.write("order", func(s allocator.Stored) (allocator.Tag, error) { s.Description = "changed"; return s.Tag, nil })
		}), nil)
		polls(1)
		synctest.Wait()
		if polls(1); w.record("order").Description != "changed" {
			t.Errorf("the record is %+v", w.record("order"))
		}
		polls(2)
		if s := w.record("order"); !s.Deleted || s.Description != "changed" {
			t.Errorf("the record is %+v", s)
		}
	})
}

// TestRowIsBack (P2): a row that SQL makes again while the poll stands still between the row and the record stays, and
// is served.
func TestRowIsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order", MaxID: 51})
		w.make(allocator.Tag{Name: "other"})
		time.Sleep(time.Hour)
		two := w.join("two")
		g := w.join("one").start()
		w.numbers.DeleteRow("order")
		g.on(nil, atFirst("peek", func() { w.sql("order", 51); two.want("order", 1, 51, 60) }))
		polls(2)
		two.want("order", 1, 61, 70)
		if polls(5); w.record("order").Deleted {
			t.Errorf("the record is %+v", w.record("order"))
		}
	})
}

// TestNewTagWithoutRow (P2): a creation that is under way is not undone, also if the database is away for longer than a
// creation takes, and however often it is polled.
func TestNewTagWithoutRow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.join("one", func(c *allocator.Config) { c.Refresh = time.Second }).start()
		w.make(allocator.Tag{Name: "other"})
		w.make(allocator.Tag{Name: "order"})
		w.numbers.DeleteRow("order")
		time.Sleep(9 * time.Second)
		g.failing("rows", allocator.ErrUnavailable)
		time.Sleep(time.Minute)
		g.on(nil, nil)
		if time.Sleep(9 * time.Second); w.record("order").Deleted {
			t.Error("a record is a tombstone, and its row could be made for 9 s")
		}
		if time.Sleep(3 * time.Second); !w.record("order").Deleted || w.record("other").Deleted {
			t.Errorf("the records are %+v and %+v", w.record("order"), w.record("other"))
		}
		if !g.Polled() {
			t.Error("the polls failed")
		}
	})
}

// TestDoubt (P2): where more than half of ten rows or more are gone, nothing is removed, and the generator is not
// ready.
func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		rows, gone int
		doubt      bool
		others     int // rows that come in their place
	}{{9, 9, false, 0}, {10, 5, false, 0}, {10, 6, true, 0}, {100, 51, true, 0}, {100, 50, false, 0}, {10, 10, true, 30}} {
		inBubble(t, fmt.Sprint(c.rows, " ", c.gone), func(t *testing.T) {
			w := newWorld(t)
			for i := range c.rows {
				w.make(allocator.Tag{Name: fmt.Sprint("tag", i)})
			}
			time.Sleep(time.Hour)
			g := w.join("one").start()
			polls(1)
			whole := w.numbers.Snapshot()
			for i := range c.gone {
				w.numbers.DeleteRow(fmt.Sprint("tag", i))
			}
			for i := range c.others { // those of another program, for example
				w.sql(fmt.Sprint("other", i), 30)
			}
			polls(5)
			if got := w.record("tag0").Deleted; got == c.doubt || g.Polled() == c.doubt {
				t.Errorf("removed: %v, polled: %v", got, g.Polled())
			}
			if c.doubt {
				w.numbers.Restore(whole)
				if polls(1); !g.Polled() || w.record("tag0").Deleted {
					t.Errorf("the rows are back, and polled is %v, the record %+v", g.Polled(), w.record("tag0"))
				}
			}
		})
	}
}

// TestPollFails: a database that is away, or is not this installation's, changes nothing, and the generator says that
// it is not ready. It is tried each second, and the log says so once a minute.
func TestPollFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.numbers.SetErr(errAway)
		w.sql("order", 30)
		var log strings.Builder
		g := w.join("one", func(c *allocator.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }).start()
		polls(2)
		if n := strings.Count(log.String(), "cannot be compared"); n < 2 || n > 4 {
			t.Errorf("the log says %d times in two minutes that polls fail:\n%s", n, &log)
		}
		if g.Polled() || w.records.Snapshot()["order"].Revision != 0 {
			t.Errorf("polled: %v, the record is %+v", g.Polled(), w.record("order"))
		}
		w.numbers.SetErr(nil)
		time.Sleep(2 * time.Second)
		if !g.Polled() || w.record("order").MaxID != 30 {
			t.Errorf("polled: %v, the record is %+v", g.Polled(), w.record("order"))
		}
		g.failing("peek", allocator.ErrUnavailable)
		w.sql("other", 30)
		if polls(1); g.Polled() {
			t.Error("a poll that could not look at a tag was a success")
		}
	})
}

// TestPolledStep: a step that SQL changes is the tag's.
func TestPolledStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.make(allocator.Tag{Name: "order"})
		g := w.join("one").start()
		g.wantIDs("order", 1, 1)
		w.numbers.SetRow(allocator.Row{Name: "order", MaxID: w.row("order").MaxID, Step: 500})
		if polls(2); w.record("order").Step != 500 || g.Views(allocator.Query{Limit: 1})[0].Step != 500 {
			t.Errorf("the record is %+v, in memory it is %+v", w.record("order"), g.Views(allocator.Query{Limit: 1}))
		}
	})
}

// TestAdopt (N8): the first request for a tag that has only a row makes its record.
func TestAdopt(t *testing.T) {
	for name, c := range map[string]struct {
		before func(w *world, g *gen)
		want   int64 // 0: an error
		err    error
	}{
		"a row": {before: func(w *world, _ *gen) { w.sql("order", 30) }, want: 30},
		"everybody knows more": {before: func(w *world, g *gen) {
			w.sql("order", 30)
			w.mark("order", 40, "trend")
			g.known.End = 50
			g.index.Observe("order", 45)
		}, want: 50},
		"no row":                   {err: allocator.ErrUnknownTag},
		"only a mark":              {before: func(w *world, _ *gen) { w.mark("order", 40, "trend") }, err: allocator.ErrUnknownTag},
		"the name was strict":      {before: func(w *world, _ *gen) { w.sql("order", 30); w.mark("order", 40, "strict") }, err: allocator.ErrTagsLost},
		"others know it as strict": {before: func(w *world, g *gen) { w.sql("order", 30); g.known.Order = allocator.Strict }, err: allocator.ErrTagsLost},
		"others must answer":       {before: func(w *world, g *gen) { w.sql("order", 30); g.silent = errAway }, err: errAway},
		"the database is away":     {before: func(w *world, g *gen) { w.sql("order", 30); g.failing("peek", errAway) }, err: errAway},
		"a row with a bad step": {before: func(w *world, _ *gen) {
			w.numbers.SetRow(allocator.Row{Name: "order", MaxID: 30, Problem: allocator.ErrDamaged})
		}, err: allocator.ErrDamaged},
		"lost, with a row": {before: func(w *world, _ *gen) { w.records.SetErr(allocator.ErrTagsLost); w.sql("order", 30) }, want: 30},
		"lost, no row":     {before: func(w *world, _ *gen) { w.records.SetErr(allocator.ErrTagsLost) }, err: allocator.ErrTagsLost},
		"another trouble":  {before: func(w *world, _ *gen) { w.records.SetErr(errAway); w.sql("order", 30) }, err: errAway},
		"another one is faster": {before: func(w *world, g *gen) {
			w.sql("order", 30)
			g.on(atFirst("swap", func() {
				w.write("order", func(s allocator.Stored) (allocator.Tag, error) {
					return s.Create(allocator.Tag{Name: "order", MaxID: 70, Step: 10}, 0)
				})
			}), nil)
		}, want: 70},
		"the record was deleted": {before: func(w *world, _ *gen) { w.make(allocator.Tag{Name: "order"}); w.bury("order", 0); w.sql("order", 30) }, err: allocator.ErrDeleted},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			g := w.join("one")
			g.known.Rules = allocator.Rules{Version: 4, Limit: 1000}
			if c.before != nil {
				c.before(w, g)
			}
			grant, err := g.Reserve(t.Context(), "order", 1)
			var moved *allocator.AdvancedError
			if errors.As(err, &moved) { // the row is below, and is raised now
				grant, err = g.Reserve(t.Context(), "order", 1)
			}
			if c.want == 0 {
				if !errors.Is(err, c.err) || errors.Is(err, allocator.ErrUnknownTag) != (c.err == allocator.ErrUnknownTag || c.err == allocator.ErrDeleted) {
					t.Errorf("%v, %v; want %v", grant.Range, err, c.err)
				}
				return
			}
			if err != nil || grant.First != c.want || name != "another one is faster" && grant.Stored.Rules != g.known.Rules {
				t.Errorf("%+v, %v; want %d, with the rules that others know", grant, err, c.want)
			}
		})
	}
}

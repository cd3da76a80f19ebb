package allocator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/idspace"
)

// giving is an allocator that has run, and has 11-100 and 101-200 of order.
func giving(t *testing.T, s *store) *allocator.Allocator {
	t.Helper()
	a, stop := startStop(t, allocator.Config{Records: s, Run: "a"})
	take(t, a, 10)
	stop()
	return a
}

// gifts are what a yields of order.
func gifts(t *testing.T, a *allocator.Allocator) []allocator.Gift {
	t.Helper()
	got := a.Yield([]string{"order", "nosuch"})
	want := []allocator.Gift{{Tag: "order", Ranges: []allocator.Given{{First: 11, Last: 100, Run: "a"}, {First: 101, Last: 200, Run: "a"}}}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("it yields %+v, want %+v", got, want)
	}
	return got
}

// room returns those of these tags for which a has room.
func room(t *testing.T, a *allocator.Allocator, tags ...string) []string {
	t.Helper()
	gifts := make([]allocator.Gift, len(tags))
	for i, tag := range tags {
		gifts[i].Tag = tag
	}
	_, taken := a.Accept(t.Context(), gifts)
	return taken
}

// claimOf lets a hear that a run has claimed a range of order.
func claimOf(a *allocator.Allocator, run string, r allocator.Range) {
	a.Push(allocator.Stored{Tag: allocator.Tag{Name: "order", MaxID: r.Last + 1,
		Last: allocator.Claim{First: r.First, Last: r.Last, Run: run}}})
	synctest.Wait()
}

// What a generator that stops has in memory is handed out by another one, oldest IDs first, each once. It stays the
// claim of the run that made it, also when it goes on to a third generator.
func TestHandOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100, "other")
		s.createTag(strictTag("invoice"))
		a, stopA := startStop(t, allocator.Config{Records: s, Run: "a"})
		var r events
		b, stopB := startStop(t, allocator.Config{Records: s.twin(), Run: "b", Notify: r.notify})
		var ids allocatortest.Checker
		ids.Add(take(t, a, 10)...)
		ids.Add(take(t, b, 1)...)
		for _, x := range []*allocator.Allocator{a, b} {
			if _, err := x.Take(t.Context(), "invoice", 1); err != nil {
				t.Fatal(err)
			}
		}
		stopA()
		if tags := a.Unused(); !slices.Equal(tags, []string{"order"}) {
			t.Errorf("unused are IDs of %v", tags)
		}
		tags := room(t, b, "order", "other", "invoice", "nosuch", "no tag")
		slices.Sort(tags)
		if !slices.Equal(tags, []string{"order", "other"}) {
			t.Errorf("there is room for %v", tags)
		}
		if n, _ := b.Accept(t.Context(), gifts(t, a)); n != 190 || left(b) != 289 {
			t.Errorf("it accepts %d IDs, and has %d", n, left(b))
		}
		if again := a.Yield(tags); again != nil || left(a) != 0 {
			t.Errorf("it yields %+v once more", again)
		}
		if _, err := a.Take(t.Context(), "order", 1); !errors.Is(err, allocator.ErrClosed) {
			t.Errorf("it has IDs that it handed over: %v", err)
		}
		if got := take(t, b, 1); got[0].First != 11 {
			t.Errorf("the oldest IDs come first, not %v", got)
		} else {
			ids.Add(got...)
		}
		claimOf(b, "a", allocator.Range{First: 1, Last: 100}) // late
		claimOf(b, "a", allocator.Range{First: 101, Last: 200})
		if n := left(b); n != 288 {
			t.Errorf("the claims of what was handed over leave %d", n)
		}
		ids.Add(take(t, b, 89)...) // all of 11-100
		claimOf(b, "a", allocator.Range{First: 1, Last: 100})
		claimOf(b, "c", allocator.Range{First: 150, Last: 160})
		if n := left(b); n != 99 {
			t.Errorf("the claim of a third generator leaves %d", n)
		}
		if alerts := published[allocator.Regressed](&r); len(alerts) != 1 || alerts[0].Got != 150 {
			t.Errorf("the alerts are %+v", alerts)
		}
		stopB()
		c := start(t, allocator.Config{Records: s.twin(), Run: "c"})
		ids.Add(take(t, c, 1)...)
		got := b.Yield(room(t, c, "order"))
		if want := []allocator.Given{{First: 202, Last: 300, Run: "b"}}; len(got) != 1 || !slices.Equal(got[0].Ranges, want) {
			t.Errorf("b yields %+v", got)
		}
		if n, _ := c.Accept(t.Context(), got); n != 99 {
			t.Errorf("c accepts %d IDs", n)
		}
		ids.Add(take(t, c, 99)...)
		unique(t, &ids)
	})
}

// A range keeps the run that claimed it on its way over several generators.
func TestHandOverKeepsTheClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		a := giving(t, s)
		b, stopB := startStop(t, allocator.Config{Records: s.twin(), Run: "b"})
		b.Accept(t.Context(), gifts(t, a))
		stopB()
		gifts(t, b)
	})
}

// What happens between the room and the gift counts: what an operator says is in force, and a gift comes once.
func TestAccept(t *testing.T) {
	limit := idspace.Limit(120)
	for name, c := range map[string]struct {
		change func(s *store, a *allocator.Allocator, stop func())
		want   int64
	}{
		"nothing":      {func(*store, *allocator.Allocator, func()) {}, 190},
		"a new max_id": {func(s *store, _ *allocator.Allocator, _ func()) { s.move(1000) }, 0},
		"a floor":      {func(_ *store, a *allocator.Allocator, _ func()) { a.Push(floor(150)) }, 51},
		"a deletion":   {func(s *store, _ *allocator.Allocator, _ func()) { s.remove() }, 0},
		"a limit": {func(s *store, _ *allocator.Allocator, _ func()) {
			s.change(allocator.Change{RulesChange: idspace.RulesChange{Limit: &limit}})
		}, 110},
		"it has stopped":     {func(_ *store, _ *allocator.Allocator, stop func()) { stop() }, 0},
		"the tag is evicted": {func(_ *store, a *allocator.Allocator, _ func()) { a.EvictIdle() }, 190},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, 100)
			a := giving(t, s)
			index := allocator.NewIndex()
			b, stop := startStop(t, allocator.Config{Records: s.twin(), Run: "b", Index: index})
			defer stop()
			room(t, b, "order")
			c.change(s, b, stop)
			synctest.Wait()
			given := gifts(t, a)
			text, err := json.Marshal(given)
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := b.Accept(t.Context(), given); n != c.want || left(b) != c.want {
				t.Errorf("it accepts %d IDs, and has %d; want %d", n, left(b), c.want)
			}
			if err := b.CheckTroubles(); err != nil {
				t.Error(err)
			}
			var again []allocator.Gift
			if err := json.Unmarshal(text, &again); err != nil {
				t.Fatal(err)
			}
			if c.want > 0 {
				if _, err := b.Take(t.Context(), "order", c.want/2); err != nil {
					t.Error(err)
				}
			}
			before := left(b)
			if n, _ := b.Accept(t.Context(), again); n != 0 || left(b) != before {
				t.Errorf("the second time it accepts %d", n)
			}
			if end := index.End("order"); end < 201 {
				t.Errorf("the mark is %d", end)
			}
		})
	}
}

// slowRecords calls slow before it loads the record of another tag than order.
type slowRecords struct {
	allocator.Records
	slow func()
}

func (r *slowRecords) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	if tag != "order" {
		r.slow()
	}
	return r.Records.Load(ctx, tag)
}

// A tag may leave memory while the records of others that are handed over are read. Nothing would look at its IDs then.
func TestAcceptWhileATagIsEvicted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100, "other")
		given := append(gifts(t, giving(t, s)), allocator.Gift{Tag: "other"})
		records := &slowRecords{Records: s.twin()}
		b := start(t, allocator.Config{Records: records, Run: "b"})
		room(t, b, "order")
		records.slow = func() {
			time.Sleep(time.Second) // order has room meanwhile
			b.EvictIdle()
		}
		if n, _ := b.Accept(t.Context(), given); n != 0 {
			t.Errorf("it accepts %d IDs", n)
		}
	})
}

// floor is the record of order with this floor.
func floor(at int64) allocator.Stored {
	return allocator.Stored{Tag: allocator.Tag{Name: "order", MaxID: 201, Floor: at, Step: 100}}
}

// A generator holds eight ranges of a tag at most. Ranges that are none are not accepted.
func TestAcceptIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		index := allocator.NewIndex()
		b := start(t, allocator.Config{Records: s, Run: "b", Index: index})
		take(t, b, 1) // it has 2-100
		for _, r := range []allocator.Given{
			{First: 0, Last: 9, Run: "a"}, {First: 900, Last: 899, Run: "a"}, {First: 900, Last: math.MaxInt64, Run: "a"},
			{First: 900, Last: 901}, {First: 900, Last: 901, Run: "b"},
		} {
			if n, _ := b.Accept(t.Context(), []allocator.Gift{{Tag: "order", Ranges: []allocator.Given{r}}}); n != 0 {
				t.Errorf("%+v: it accepts %d IDs", r, n)
			}
		}
		if n, _ := b.Accept(t.Context(), []allocator.Gift{{Tag: "nosuch", Ranges: []allocator.Given{{First: 1, Last: 2, Run: "a"}}}}); n != 0 {
			t.Errorf("it accepts %d IDs of another tag", n)
		}
		many := allocator.Gift{Tag: "order"}
		for i := range int64(20) {
			many.Ranges = append(many.Ranges, allocator.Given{First: 1000 + 100*i, Last: 1000 + 100*i + 9, Run: "a"})
		}
		if n, _ := b.Accept(t.Context(), []allocator.Gift{many}); n != 70 || left(b) != 169 {
			t.Errorf("it accepts %d IDs and has %d", n, left(b))
		}
		if end := index.End("order"); end != 2910 {
			t.Errorf("the mark is %d", end)
		}
		if tags := room(t, b, "order"); len(tags) != 0 {
			t.Errorf("there is room for %v", tags)
		}
	})
}

// The store was set back, so a generator claims what another one hands over, at the same moment or before. Nothing
// comes twice.
func TestAcceptWhatIsClaimed(t *testing.T) {
	for name, first := range map[string]bool{"before": true, "at that moment": false} {
		inBubble(t, name, func(t *testing.T) {
			a := giving(t, newStore(t, 100))
			s := newStore(t, 100)
			var r events
			b := start(t, allocator.Config{Records: s, Run: "b", Notify: r.notify})
			given := gifts(t, a)
			var ids allocatortest.Checker
			if first {
				ids.Add(take(t, b, 12)...) // of 1-100, and 101-200 is there
				if n, _ := b.Accept(t.Context(), given); n != 0 {
					t.Errorf("it accepts %d IDs", n)
				}
			} else {
				gate := make(chan struct{})
				s.onReserved(func(string, allocator.Range) error { <-gate; return nil })
				w := queued(t, b, "order", 1)
				synctest.Wait()
				if n, _ := b.Accept(t.Context(), given); n != 190 {
					t.Errorf("it accepts %d IDs", n)
				}
				ranges, err := w.Wait(t.Context())
				if err != nil || ranges[0].First != 11 {
					t.Errorf("%v, %v", ranges, err)
				}
				ids.Add(ranges...)
				close(gate)
			}
			synctest.Wait()
			if n := len(published[allocator.Regressed](&r)); n == 0 {
				t.Error("there is no alert")
			}
			for range 30 {
				ids.Add(take(t, b, 10)...)
			}
			unique(t, &ids)
		})
	}
}

// A tag that is not in memory gets room only by a record that is as new as what was heard: a push has passed by, and an
// old server may answer.
func TestRoomByAnOldRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.make(allocator.Tag{Name: "order"})
		g := w.join("g")
		g.behind(map[string]allocator.Stored{"order": old})
		g.Push(w.raise("order", 500, 400))
		if tags := room(t, g.Allocator, "order"); len(tags) != 0 {
			t.Errorf("there is room for %v", tags)
		}
		g.behind(nil)
		if tags := room(t, g.Allocator, "order"); len(tags) != 1 {
			t.Error("there is no room")
		}
	})
}

// What another generator hands over may be anything. Afterwards memory has no ID twice, and none below 1.
func FuzzAccept(f *testing.F) {
	f.Add([]byte(`[{"tag":"order","ranges":[{"first":"11","last":"100","run":"a"},{"first":"90","last":"120","run":"c"}]}]`))
	f.Add([]byte(`[{"tag":"order","ranges":[{"first":"-1","last":"9223372036854775807","run":"a"}]},{"tag":"x"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var gifts []allocator.Gift
		if json.Unmarshal(text, &gifts) != nil {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			b := start(t, allocator.Config{Records: newStore(t, 100), Run: "b"})
			take(t, b, 5)
			b.Accept(t.Context(), slices.Clone(gifts))
			b.Accept(t.Context(), gifts)
			var last int64
			for _, s := range b.Views(allocator.Query{Prefix: "order", Limit: 1})[0].Segments {
				if s.Next <= last || s.Last < s.Next {
					t.Errorf("%+v comes after %d", s, last)
				}
				last = s.Last
			}
		})
	})
}

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

// TestLimit: the largest ID is handed out, and none above it, until an operator raises the limit.
func TestLimit(t *testing.T) {
	for _, order := range []allocator.Order{allocator.Trend, allocator.Strict} {
		bubble(t, func(t *testing.T) {
			s := newStore(t, 10)
			if order == allocator.Strict {
				s = newStrict(t, 1)
			}
			s.rule(`{"limit":"25"}`)
			var r events
			a := start(t, allocator.Config{Records: s, Notify: r.notify})
			for id := int64(1); id <= 25; id++ {
				wantRanges(t, "an ID", take(t, a, 1), allocator.Range{First: id, Last: id})
				if got, want := len(published[allocator.Ending](&r)), 1; id >= 20 && got != want {
					t.Errorf("%v order: %d alerts with %d of 25 IDs handed out, want %d", order, got, id, want)
				}
			}
			refused(t, a, 1, allocator.ErrExhausted, 0)
			refused(t, a, 1, allocator.ErrExhausted, 0)
			if got := published[allocator.Ending](&r); len(got) != 1 || got[0].Limit != 25 || got[0].Tag != "order" || order == allocator.Strict && got[0].Left != 5 {
				t.Errorf("%v order: the alerts are %+v", order, got)
			}
			if got := s.maxID(); got != 26 {
				t.Errorf("%v order: max_id is %d", order, got)
			}
			calls := len(s.reserves())
			time.Sleep(time.Hour)
			refused(t, a, 1, allocator.ErrExhausted, 0)
			if n := len(s.reserves()); n != calls {
				t.Errorf("%v order: the store was asked %d times of an exhausted tag", order, n-calls)
			}
			s.rule(`{"limit":"27"}`)
			synctest.Wait()
			wantRanges(t, "a limit of 27", take(t, a, 2), allocator.Range{First: 26, Last: 27})
			refused(t, a, 1, allocator.ErrExhausted, 0)
			s.rule(`{"limit":"0"}`)
			synctest.Wait()
			wantRanges(t, "no limit", take(t, a, 1), allocator.Range{First: 28, Last: 28})
		})
	}
}

// TestLimitCutsMemory: when Push returns, no ID above the limit is handed out of memory.
func TestLimitCutsMemory(t *testing.T) {
	for name, c := range map[string]struct {
		limit string
		last  int64 // ID that is handed out; 0: none
	}{
		"the next ID":             {"11", 11},
		"below what was taken":    {"5", 0},
		"what was taken":          {"10", 0},
		"in the first segment":    {"42", 42},
		"the end of the first":    {"100", 100},
		"in the second segment":   {"150", 150},
		"the end of the second":   {"200", 200},
		"the second segment goes": {"101", 101},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, 100)
			a := start(t, allocator.Config{Records: unwatched{s}})
			take(t, a, 10) // 11 to 200 are in memory
			a.Push(s.rule(`{"limit":"` + c.limit + `"}`))
			if n := left(a); n != max(c.last-10, 0) {
				t.Errorf("%d IDs are in memory", n)
			}
			for id := int64(11); id <= c.last; id++ {
				wantRanges(t, "an ID", take(t, a, 1), allocator.Range{First: id, Last: id})
			}
			refused(t, a, 1, allocator.ErrExhausted, 0)
			if got := s.maxID(); got != 201 {
				t.Errorf("max_id is %d", got)
			}
			if err := a.CheckTroubles(); err != nil {
				t.Error(err)
			}
			a.Push(s.rule(`{"limit":"300"}`))
			wantRanges(t, "a higher limit", take(t, a, 1), allocator.Range{First: 201, Last: 201})
		})
	}
}

// TestLimitCutsAClaim: a claim of a strict tag that is on its way when the limit is set serves nothing above.
func TestLimitCutsAClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		a := startStrict(t, allocator.Config{Records: unwatched{s}})
		answer := make(chan struct{})
		s.onReserved(func(string, allocator.Range) error { <-answer; return nil })
		two := request(t, a, 2)
		a.Push(s.rule(`{"limit":"11"}`))
		close(answer)
		two.refused(t, allocator.ErrExhausted)
	})
}

// TestLimitRaisedMeanwhile: an answer that the tag is exhausted, which was on its way when the limit was raised, counts
// no more.
func TestLimitRaisedMeanwhile(t *testing.T) {
	for _, order := range []allocator.Order{allocator.Trend, allocator.Strict} {
		bubble(t, func(t *testing.T) {
			s := newStore(t, 10)
			if order == allocator.Strict {
				s = newStrict(t, 1)
			}
			a := start(t, allocator.Config{Records: unwatched{s}})
			take(t, a, 10)
			a.Push(s.rule(`{"limit":"10"}`))
			raised := false
			s.onReserve(func(context.Context, string, int64) error {
				if raised {
					return nil
				}
				raised = true
				a.Push(s.rule(`{"limit":"100"}`))
				return allocator.ErrExhausted
			})
			take(t, a, 1)
		})
	}
}

// TestExhaustedGoesOn: a tag that was exhausted goes on when an operator raises or removes the limit, also where the
// old limit was never in memory, and where a server that is behind shows it again.
func TestExhaustedGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		rules string
		loads bool // before the tag is exhausted
		stale bool
	}{
		"removed, and the old one is not known": {rules: `{"limit":"0"}`},
		"removed":                               {rules: `{"limit":"0"}`, loads: true},
		"raised, and an old server answers":     {rules: `{"limit":"99"}`, loads: true, stale: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.numbers = nil
			w.make(allocator.Tag{Name: "order", MaxID: 11, Step: 10, Rules: allocator.Rules{Limit: 20, Version: 1}})
			g, two := w.join("one").start(), w.join("two")
			if c.loads {
				g.wantIDs("order", 10, 11)
			} else {
				two.wantIDs("order", 10, 11)
			}
			old := w.record("order")
			exhausted := func(want error) {
				t.Helper()
				if _, err := g.Take(t.Context(), "order", 1); !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
			}
			exhausted(allocator.ErrExhausted)
			w.write("order", func(s allocator.Stored) (allocator.Tag, error) {
				return s.Change(allocator.Change{RulesChange: changeOf(t, c.rules)})
			})
			synctest.Wait()
			if c.stale {
				time.Sleep(time.Second)
				g.behind(map[string]allocator.Stored{"order": old})
				exhausted(allocator.ErrTimedOut)
				g.behind(nil)
				time.Sleep(10 * time.Second)
			}
			g.wantIDs("order", 1, 21)
		})
	}
}

// TestRowBeyondTheLimit: a max_id of the database above the tag's last ID, by a typo in SQL, exhausts the tag only when
// its record has risen to it. Until then it can be set back.
func TestRowBeyondTheLimit(t *testing.T) {
	for name, typo := range map[string]int64{"above a limit": 5000, "the largest there is": math.MaxInt64} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.make(allocator.Tag{Name: "order", MaxID: 11, Step: 10, Rules: allocator.Rules{Limit: 1000, Version: 1}})
			g := w.join("one").start()
			w.sql("order", typo)
			if _, err := g.Take(t.Context(), "order", 1); err == nil || errors.Is(err, allocator.ErrExhausted) {
				t.Errorf("error %v", err)
			}
			w.sql("order", 11)
			time.Sleep(2 * time.Second)
			g.wantIDs("order", 1, 11)
			w.sql("order", typo)
			polls(3)
			if _, err := g.Take(t.Context(), "order", 100); !errors.Is(err, allocator.ErrExhausted) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestOutlast: the step grows until a segment lasts as long as the tag says, or else the configuration, up to the
// configured step.
func TestOutlast(t *testing.T) {
	for name, c := range map[string]struct {
		rules       string
		least, most int64 // step, after hours at 10 IDs a second
	}{
		"as configured":           {`{}`, 300, 2400},
		"the tag's own":           {`{"outlast":"16m"}`, 10_000, 10_000},
		"shorter than configured": {`{"outlast":"10s"}`, 50, 400},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, 10)
			s.rule(c.rules)
			a := start(t, allocator.Config{Records: s, Outlast: time.Minute, MaxStep: 10_000})
			for range 4 * 3600 {
				take(t, a, 10)
				time.Sleep(time.Second)
			}
			if got := a.Views(allocator.Query{Limit: 1})[0].Step; got < c.least || got > c.most {
				t.Errorf("the step is %d, want %d to %d", got, c.least, c.most)
			}
		})
	}
}

package allocator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
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

// TestLimitCutsMemory: when Apply returns, no ID above the limit is handed out of memory.
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
			a.Apply(s.rule(`{"limit":"` + c.limit + `"}`))
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
			a.Raise("order", 0, s.rule(`{"limit":"300"}`).Rules)
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
		a.Apply(s.rule(`{"limit":"11"}`))
		close(answer)
		two.refused(t, allocator.ErrExhausted)
	})
}

// TestLimitRaisedMeanwhile: an answer that the tag is exhausted, which was on its way when the limit was raised, counts no more.
func TestLimitRaisedMeanwhile(t *testing.T) {
	for _, order := range []allocator.Order{allocator.Trend, allocator.Strict} {
		bubble(t, func(t *testing.T) {
			s := newStore(t, 10)
			if order == allocator.Strict {
				s = newStrict(t, 1)
			}
			a := start(t, allocator.Config{Records: unwatched{s}})
			take(t, a, 10)
			a.Apply(s.rule(`{"limit":"10"}`))
			raised := false
			s.onReserve(func(_ context.Context, _ string, n int64) error {
				switch {
				case raised:
					return nil
				case n == 1: // no step was left, and now the last ID is asked for
					raised = true
					a.Apply(s.rule(`{"limit":"100"}`))
				}
				return allocator.ErrExhausted
			})
			take(t, a, 1)
		})
	}
}

// TestOutlast: the step grows until a segment lasts as long as the tag says, or else the configuration, up to the tag's max_step or
// else that of the configuration.
func TestOutlast(t *testing.T) {
	for name, c := range map[string]struct {
		rules       string
		least, most int64 // step, after hours at 10 IDs a second
	}{
		"as configured":                      {`{}`, 300, 2400},
		"the tag's own":                      {`{"outlast":"16m"}`, 10_000, 10_000},
		"shorter than configured":            {`{"outlast":"10s"}`, 50, 400},
		"the tag's max_step":                 {`{"outlast":"16m","max_step":3000}`, 3000, 3000},
		"a max_step above the configuration": {`{"outlast":"1h","max_step":20000}`, 20_000, 20_000},
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

// TestClaimsUnderRules: with a database the rules stand in the ledger. No claim goes beyond the limit, and none is made while the tag
// is paused, whatever the database says.
func TestClaimsUnderRules(t *testing.T) {
	rows, ledger := allocatortest.NewMemory(), allocatortest.NewMemoryLedger()
	s := allocator.WithLedger(rows, ledger, allocator.NewMarks(), "one")
	createTag(t, s, allocator.Tag{Name: "order", MaxID: 1, Step: 10})
	change := func(text string) {
		t.Helper()
		if _, err := s.Update(t.Context(), "order", allocator.Change{RulesChange: changeOf(t, text)}); err != nil {
			t.Fatal(err)
		}
	}
	end := func() int64 {
		t.Helper()
		e, err := ledger.Read(t.Context(), "order")
		if err != nil {
			t.Fatal(err)
		}
		return e.End
	}
	change(`{"limit":"15"}`)
	for _, want := range []allocator.Range{{First: 1, Last: 10}, {First: 11, Last: 15}} {
		g, err := s.Reserve(t.Context(), "order", 1, end())
		if err != nil || g.Range != want || end() != want.Last+1 {
			t.Fatalf("%v, %v, want %v; the ledger ends at %d", g.Range, err, want, end())
		}
	}
	if g, err := s.Reserve(t.Context(), "order", 1, end()); !errors.Is(err, allocator.ErrExhausted) || end() != 16 {
		t.Errorf("above the limit: %v, %v; the ledger ends at %d", g, err, end())
	}
	change(`{"limit":"0","paused":true}`)
	if g, err := s.Reserve(t.Context(), "order", 1, end()); !errors.Is(err, allocator.ErrPaused) || end() != 16 {
		t.Errorf("paused: %v, %v; the ledger ends at %d", g, err, end())
	}
}

// TestClaimAfterTheLimit: a claim begins with the record that it knows. If another generator has ended the limit meanwhile, the whole range
// is claimed: the store has reserved it, and the rest would be lost.
func TestClaimAfterTheLimit(t *testing.T) {
	rows, ledger := allocatortest.NewMemory(), allocatortest.NewMemoryLedger()
	one := allocator.WithLedger(rows, ledger, allocator.NewMarks(), "one")
	two := allocator.WithLedger(rows, ledger, allocator.NewMarks(), "two")
	createTag(t, one, allocator.Tag{Name: "order", MaxID: 1, Step: 10})
	limit := func(by allocator.Store, at string) {
		t.Helper()
		if _, err := by.Update(t.Context(), "order", allocator.Change{RulesChange: changeOf(t, `{"limit":"`+at+`"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	limit(one, "15")
	for _, want := range []allocator.Range{{First: 1, Last: 10}, {First: 11, Last: 20}} {
		if g, err := one.Reserve(t.Context(), "order", 1, want.First); err != nil || g.Range != want {
			t.Errorf("%v, %v, want %v", g, err, want)
		}
		limit(two, "0")
	}
}

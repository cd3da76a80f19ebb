package allocatortest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// ruleCases are about the rules that operators set. Each runs for a tag of trend order, and for a strict one.
func ruleCases() []Case {
	var cases []Case
	for _, c := range []struct {
		name string
		run  func(tb testing.TB, b Backend, tag allocator.Tag)
	}{
		{"RulesKept", rulesKept},
		{"RulesFresh", rulesFresh},
		{"RulesPaused", rulesPaused},
		{"RulesLimit", rulesLimit},
		{"RulesRefused", rulesRefused},
	} {
		cases = append(cases, Case{c.name, func(tb testing.TB, b Backend) {
			if b.NoRules {
				return // a ledger beside it keeps them
			}
			c.run(tb, b, allocator.Tag{Name: "order", MaxID: 1, Step: 10})
		}}, Case{c.name + "Strict", func(tb testing.TB, b Backend) {
			if b.Strict && !b.NoRules {
				c.run(tb, b, strictTag("order"))
			}
		}})
	}
	return cases
}

// rules changes the rules of order.
func rules(tb testing.TB, s allocator.Store, c allocator.RulesChange) allocator.Tag {
	tb.Helper()
	t, err := s.Update(within(tb), "order", allocator.Change{RulesChange: c})
	if err != nil {
		tb.Fatalf("Update: %v", err)
	}
	return t
}

// createRuled creates a tag with a quota and a limit.
func createRuled(tb testing.TB, s allocator.Store, tag allocator.Tag, limit int64) allocator.Tag {
	tb.Helper()
	tag.Rules = allocator.Rules{Quota: allocator.Quota{PerSecond: 5, Burst: 9}, Limit: limit, Version: time.Now().UnixMilli()}
	t, err := s.Create(within(tb), tag)
	if err != nil || t.Rules != tag.Rules {
		tb.Fatalf("Create: %+v, %v; want the rules %+v", t, err, tag.Rules)
	}
	return t
}

// wantRules checks the rules that any handle shows.
func wantRules(tb testing.TB, what string, b Backend, want allocator.Rules) {
	tb.Helper()
	s := b.Open(tb)
	if t, err := s.Get(within(tb), "order"); err != nil || t.Rules != want {
		tb.Errorf("%s: Get returns %+v, %v; want the rules %+v", what, t, err, want)
	}
	if list, err := s.List(within(tb), allocator.Query{Limit: 10}); err != nil || len(list) != 1 || list[0].Rules != want {
		tb.Errorf("%s: List returns %+v, %v; want the rules %+v", what, list, err, want)
	}
	var found allocator.Rules
	err := s.Floors(within(tb), func(tag string, _ int64, r allocator.Rules) {
		if tag == "order" && r.Version > found.Version { // the ledger and the store of strict tags may both report it
			found = r
		}
	})
	if err != nil || found != want {
		tb.Errorf("%s: Floors reports %+v, %v; want %+v", what, found, err, want)
	}
}

// rulesKept: no other change of the record loses its rules, and each grant has them.
func rulesKept(tb testing.TB, b Backend, tag allocator.Tag) {
	s, other := b.Open(tb), b.Open(tb)
	want := createRuled(tb, s, tag, 1000).Rules
	wantRules(tb, "created", b, want)
	for _, h := range []allocator.Store{s, other, s} {
		if g := reserve(tb, h, "order", 3); g.Rules != want || g.Ending {
			tb.Errorf("a grant: %+v, want the rules %+v", g, want)
		}
	}
	text, to, step := "bills", int64(500), int64(20)
	changes := []allocator.Change{{Description: &text}, {MaxID: &to}}
	if tag.Order != allocator.Strict {
		changes = append(changes, allocator.Change{Step: &step})
	}
	for _, c := range changes {
		if t, err := other.Update(within(tb), "order", c); err != nil || t.Rules != want {
			tb.Errorf("Update: %+v, %v; want the rules %+v", t, err, want)
		}
		wantRules(tb, "after another change", b, want)
	}
	if g := reserve(tb, s, "order", 1); g.First < to || g.Rules != want {
		tb.Errorf("a grant after the changes: %+v", g)
	}
	yes := true
	after := rules(tb, other, allocator.RulesChange{Paused: &yes}).Rules
	if after.Version <= want.Version || after.Quota != want.Quota || after.Limit != want.Limit || !after.Paused {
		tb.Errorf("%+v was paused, and is %+v", want, after)
	}
	wantRules(tb, "paused", b, after)
	// Two operators at once: the rules of both stand, under two versions.
	var wg sync.WaitGroup
	limit, versions := allocator.Limit(2000), [2]int64{}
	for i, c := range []allocator.RulesChange{{Limit: &limit}, {Quota: &allocator.Quota{PerSecond: 7}}} {
		h := b.Open(tb)
		wg.Go(func() {
			if t, err := h.Update(within(tb), "order", allocator.Change{RulesChange: c}); err != nil {
				tb.Errorf("Update: %v", err)
			} else {
				versions[i] = t.Version
			}
		})
	}
	wg.Wait()
	want = allocator.Rules{Quota: allocator.Quota{PerSecond: 7, Burst: 7}, Paused: true, Limit: 2000, Version: max(versions[0], versions[1])}
	wantRules(tb, "two operators", b, want)
	if versions[0] == versions[1] {
		tb.Errorf("two changes have the version %d", versions[0])
	}
}

// rulesFresh: a tag that is created again has its own rules, and generators that remember the old ones learn that.
func rulesFresh(tb testing.TB, b Backend, tag allocator.Tag) {
	s, other := b.Open(tb), b.Open(tb)
	createRuled(tb, s, tag, 100)
	reserve(tb, s, "order", 5)
	yes := true
	old := rules(tb, s, allocator.RulesChange{Paused: &yes}).Rules
	if _, err := s.Delete(within(tb), "order", 1); err != nil {
		tb.Fatalf("Delete: %v", err)
	}
	tag.Rules = allocator.Rules{}
	again, err := other.Create(within(tb), tag)
	if err != nil || again.Rules != (allocator.Rules{Version: again.Version}) || again.Version <= old.Version {
		tb.Errorf("created again: %+v, %v; want no rules, of a version above %d", again, err, old.Version)
	}
	wantRules(tb, "created again", b, again.Rules)
	if g := reserve(tb, s, "order", 200); g.Rules != again.Rules {
		tb.Errorf("a grant: %+v", g)
	}
}

// rulesPaused: nothing is reserved of a paused tag, by any handle.
func rulesPaused(tb testing.TB, b Backend, tag allocator.Tag) {
	s, other := b.Open(tb), b.Open(tb)
	if _, err := s.Create(within(tb), tag); err != nil {
		tb.Fatalf("Create: %v", err)
	}
	last := reserve(tb, s, "order", 10).Last
	reserveAbove := func(h allocator.Store) {
		tb.Helper()
		g := reserve(tb, h, "order", 10)
		if g.First <= last || !b.Gaps && g.First != last+1 {
			tb.Errorf("after %d comes %v", last, g.Range)
		}
		last = g.Last
	}
	reserveAbove(other)
	for range 3 { // the handles remember what they wrote a moment ago
		yes, no := true, false
		paused := rules(tb, s, allocator.RulesChange{Paused: &yes})
		for _, h := range []allocator.Store{s, other, b.Open(tb)} {
			for _, n := range []int64{1, 100} {
				_, err := insist(within(tb), h, "order", n)
				if e, ok := errors.AsType[*allocator.PausedError](err); !ok || e.Rules != paused.Rules {
					tb.Errorf("Reserve of a paused tag: %v, want its rules %+v", err, paused.Rules)
				}
			}
		}
		if !b.Gaps {
			if t, err := s.Get(within(tb), "order"); err != nil || t.MaxID != last+1 {
				tb.Errorf("max_id of the paused tag is %d, %v; want %d", t.MaxID, err, last+1)
			}
		}
		rules(tb, other, allocator.RulesChange{Paused: &no})
		reserveAbove(s)
		reserveAbove(other)
	}
}

// rulesLimit: whatever several handles reserve, no ID is above the limit, and all up to it come. An operator lowers the limit meanwhile.
func rulesLimit(tb testing.TB, b Backend, tag allocator.Tag) {
	s := b.Open(tb)
	if _, err := s.Create(within(tb), tag); err != nil {
		tb.Fatalf("Create: %v", err)
	}
	const limit, lower = 600, 500
	at := allocator.Limit(limit)
	rules(tb, s, allocator.RulesChange{Limit: &at})
	var mu sync.Mutex
	var c Checker
	var confirmed bool // the operator has the answer
	var highest, ending int64
	var wg sync.WaitGroup
	random := Seed(tb)
	for range 5 {
		h, random := b.Open(tb), rand.New(rand.NewPCG(random.Uint64(), 1))
		wg.Go(func() {
			for n := int64(1); ; {
				mu.Lock()
				known := confirmed
				mu.Unlock()
				g, err := insist(within(tb), h, "order", n)
				mu.Lock()
				switch {
				case err == nil && (known && g.Last > lower || g.Last > limit):
					tb.Errorf("%v was reserved, the limit is %d, known to be lower: %v", g.Range, limit, known)
				case err == nil:
					c.Add(g.Range)
					highest = max(highest, g.Last)
					if g.Ending {
						ending++
					}
				}
				mu.Unlock()
				switch {
				case errors.Is(err, allocator.ErrExhausted) && n == 1:
					return
				case errors.Is(err, allocator.ErrExhausted):
					n = 1
				case err != nil:
					tb.Errorf("Reserve: %v", err)
					return
				default:
					n = 1 + random.Int64N(20)
				}
			}
		})
	}
	at = lower
	rules(tb, s, allocator.RulesChange{Limit: &at}) // of a strict tag this loses to claims for a while
	mu.Lock()
	confirmed = true
	mu.Unlock()
	wg.Wait()
	if ids, err := c.Check(); err != nil || !b.Gaps && ids != highest || highest < lower || highest > limit {
		tb.Errorf("%d IDs up to %d were reserved, %v; want all up to %d at least", ids, highest, err, lower)
	}
	if ending > 1 {
		tb.Errorf("%d grants say that 80 %% are reserved", ending)
	}
	at = limit + 3
	if b.Gaps { // the database was ahead of the ledger
		at = limit + 300
	}
	rules(tb, b.Open(tb), allocator.RulesChange{Limit: &at})
	if g := reserve(tb, s, "order", 1); g.Last > int64(at) || g.First <= highest || !b.Gaps && g.First != highest+1 {
		tb.Errorf("after the limit was raised to %d: %v", at, g.Range)
	}
}

// rulesRefused: rules that do not fit change nothing.
func rulesRefused(tb testing.TB, b Backend, tag allocator.Tag) {
	s := b.Open(tb)
	want := createRuled(tb, s, tag, 1000).Rules
	text, step, below := "new", allocator.Duration(time.Hour), int64(5)
	changes := []allocator.RulesChange{{Quota: &allocator.Quota{PerSecond: -1}}, {MaxStep: &below}}
	if tag.Order == allocator.Strict {
		changes = append(changes, allocator.RulesChange{Outlast: &step})
	}
	for _, c := range changes {
		_, err := s.Update(within(tb), "order", allocator.Change{Description: &text, RulesChange: c})
		wantError(tb, "Update", err, allocator.ErrBadValue)
	}
	wantRules(tb, "refused changes", b, want)
	if t, err := s.Get(within(tb), "order"); err != nil || t.Description != "" {
		tb.Errorf("a refused change: %+v, %v", t, err)
	}
}

// entryRules: the rules of a tag come back as they were written, and are kept by a claim and when the end is raised.
func entryRules(tb testing.TB, b LedgerBackend) {
	one, other := b.Open(tb), b.Open(tb)
	want := allocator.Rules{Quota: allocator.Quota{PerSecond: 5, Burst: 1 << 40}, Paused: true, Outlast: allocator.Duration(90 * time.Second),
		MaxStep: 1 << 40, Limit: 1<<63 - 2, Version: 1<<53 + 1}
	e, err := one.Read(within(tb), "order")
	if err == nil {
		e.End, e.Rules = 5, want
		_, err = one.Write(within(tb), "order", e)
	}
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := allocator.Raise(within(tb), other, "order", 7, 6); err != nil {
		tb.Fatalf("Raise: %v", err)
	}
	write(tb, one, "order", 9, 0)
	if e := read(tb, other, "order", 9); e.Rules != want {
		tb.Errorf("the record is %+v, want the rules %+v", e, want)
	}
	var found allocator.Rules
	if err := other.Each(within(tb), func(_ string, e allocator.Entry) { found = e.Rules }); err != nil || found != want {
		tb.Errorf("Each: %+v, %v; want %+v", found, err, want)
	}
}

package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus/idspace"
)

// recordFirstWrite: a tag has no record until one is written. What one handle writes, another one
// loads and replaces, with the revision that the last Swap returned.
func recordFirstWrite(tb testing.TB, b RecordsBackend) {
	one, other := b.Open(tb), b.Open(tb)
	if s, err := one.Load(within(tb), "order"); err != nil || s.Revision != 0 {
		tb.Errorf("Load of a tag without a record: %+v, %v", s, err)
	}
	var s allocator.Stored
	for end := int64(11); end <= 201; end += 10 {
		was := s.Revision
		s.Tag = trend("order", end)
		for ctx := within(tb); ; {
			revision, err := one.Swap(ctx, s.Tag, was)
			if err == nil {
				s.Revision = revision
				break
			}
			// A store may refuse its only writer once in a while. Then nothing has changed.
			if !errors.Is(err, allocator.ErrConflict) || !sleep(ctx, poll) {
				tb.Fatalf("Swap on revision %d, which the last one returned: %v", was, err)
			}
		}
		if s.Revision <= was {
			tb.Errorf("the revision after %d is %d", was, s.Revision)
		}
		load(tb, other, s)
		put(tb, other, trend("user", end))
		one, other = other, one
	}
	if s, err := other.Load(within(tb), "orde"); err != nil || s.Revision != 0 {
		tb.Errorf("Load of another tag without a record: %+v, %v", s, err)
	}
}

// recordOtherRevision: only a Swap on the present record writes.
func recordOtherRevision(tb testing.TB, b RecordsBackend) {
	one, other := b.Open(tb), b.Open(tb)
	old := put(tb, one, trend("order", 11))
	user := put(tb, one, trend("user", 500))
	now := put(tb, other, trend("order", 21))
	for _, revision := range []uint64{0, old.Revision, user.Revision, now.Revision - 1, now.Revision + 1,
		now.Revision + 1<<40} {
		for _, r := range []allocator.Records{one, other} {
			_, err := r.Swap(within(tb), trend("order", 901), revision)
			wantError(tb, fmt.Sprintf("Swap on revision %d where it is %d", revision, now.Revision), err,
				allocator.ErrConflict)
		}
	}
	_, err := one.Swap(within(tb), trend("new", 901), now.Revision)
	wantError(tb, "Swap on a revision where there is no record", err, allocator.ErrConflict)
	for _, r := range []allocator.Records{one, other} {
		load(tb, r, now)
		if s, err := r.Load(within(tb), "new"); err != nil || s.Revision != 0 {
			tb.Errorf("after a refused Swap another tag has the record %+v, %v", s, err)
		}
	}
}

// fullTags are records with every field.
func fullTags() []allocator.Tag {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	limit := opaque.Domain("d9").Last()
	rules := allocator.Rules{Quota: idspace.Quota{PerSecond: 7, Burst: 9}, Paused: true,
		Outlast: idspace.Duration(time.Minute), Limit: 9000, Version: 1<<53 + 1}
	strictRules := rules
	strictRules.Outlast = 0
	tags := []allocator.Tag{
		{Name: "trend", MaxID: 5000, Step: 77, Description: "täglich \"x\"\n", Updated: at, Rules: rules, Floor: 4000,
			Last: allocator.Claim{First: 4900, Last: 4999, Node: "a", Run: "r1", Step: 100, Time: at}},
		{Name: "strict", MaxID: 2, Updated: at, Order: allocator.Strict, Rules: strictRules,
			Last: allocator.Claim{First: 1, Last: 1, Node: "a", Run: "r1", Time: at}},
		{Name: "opaque", MaxID: 50, Step: 10, Updated: at, Order: allocator.OpaqueOrder("d9"),
			KeyID: opaque.KeyID(make([]byte, opaque.KeySize)),
			Rules: allocator.Rules{Limit: limit}},
		{Name: "tombstone", MaxID: 5000, Step: 10, Updated: at, Floor: 4000, Deleted: true},
		{Name: "large", MaxID: 1<<53 + 1, Step: allocator.LimitStep, Updated: at, Floor: 1<<53 + 1},
		{Name: "largest", MaxID: math.MaxInt64, Step: 1, Updated: at, Floor: math.MaxInt64},
	}
	for i := range tags {
		tags[i].Format = 1
	}
	return tags
}

// recordFields: what was written is what is loaded and watched.
func recordFields(tb testing.TB, b RecordsBackend) {
	one, other := b.Open(tb), b.Open(tb)
	before := put(tb, one, trend("before", 1))
	w := follow(tb, other)
	w.wait(tb, before)
	for _, t := range fullTags() {
		s := put(tb, one, t)
		load(tb, other, s)
		w.wait(tb, s)
		again := follow(tb, b.Open(tb))
		again.wait(tb, s)
	}
}

// recordNames: names that a store may take for the same, or for its own keys.
func recordNames(tb testing.TB, b RecordsBackend) {
	one, other := b.Open(tb), b.Open(tb)
	names := []string{"order", "Order", "ORDER", "order.eu", "order/eu", "order=1", "order-", "_order", "_beat.5",
		"_bucket", "tag", "tag.order",
		strings.Repeat("x", idspace.MaxTagLen)}
	var all []allocator.Stored
	for i, name := range names {
		all = append(all, put(tb, one, trend(name, int64(i)+11)))
	}
	w := follow(tb, b.Open(tb))
	for _, s := range all {
		load(tb, other, s)
		w.wait(tb, s)
		if n := w.first(s.Name); n < 1 {
			tb.Errorf("%s did not come as one that was there", s.Name)
		}
	}
}

// claim claims n IDs on a record, as a generator does.
func claim(
	ctx context.Context, r allocator.Records, s allocator.Stored, n int64,
) (allocator.Stored, allocator.Range, error) {
	first := max(s.MaxID, 1)
	s.Tag = trend("order", first+n)
	var err error
	s.Revision, err = r.Swap(ctx, s.Tag, s.Revision)
	return s, allocator.Range{First: first, Last: first + n - 1}, err
}

// recordManyClaims: of handles that claim at once, each replaces another revision, and no two claim
// the same. What was not claimed for certain did not move the end.
func recordManyClaims(tb testing.TB, b RecordsBackend) {
	const handles, each, size = 8, 25, 10
	var c Checker
	var claimed, lost atomic.Int64
	var mu sync.Mutex
	replaced := make(map[uint64]bool)
	var wg sync.WaitGroup
	for range handles {
		r, ctx := b.Open(tb), within(tb)
		wg.Go(func() {
			var s allocator.Stored
			known := false
			for done := 0; done < each; {
				var err error
				if !known {
					s, err = r.Load(ctx, "order")
				}
				runtime.Gosched()
				was := s.Revision
				var ids allocator.Range
				if err == nil {
					if s, ids, err = claim(ctx, r, s, size); !surely(err) {
						lost.Add(1)
					}
				}
				known = err == nil && done%2 == 0 // now and then the next claim is on what the last one wrote
				switch {
				case err == nil:
					c.Add(ids)
					claimed.Add(1)
					done++
					mu.Lock()
					if replaced[was] {
						tb.Errorf("revision %d was replaced twice", was)
					}
					replaced[was] = true
					mu.Unlock()
				case ctx.Err() != nil:
					tb.Errorf("claiming: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantUnique(tb, &c)
	put(tb, b.Open(tb), trend("user", 11)) // a store may hold a write back until the next one
	s, err := b.Open(tb).Load(within(tb), "order")
	least := 1 + claimed.Load()*size
	if most := least + lost.Load()*size; err != nil || s.MaxID < least || s.MaxID > most {
		tb.Errorf("the end is %d, %v; %d claims were made, and %d lost: want %d to %d", s.MaxID, err, claimed.Load(),
			lost.Load(), least, most)
	}
}

// recordLateSwaps makes writes that end with their context, done or not, and then others that are
// confirmed. No write of the first kind may land on a record of the second.
func recordLateSwaps(tb testing.TB, b RecordsBackend) {
	random := Seed(tb)
	one, other := b.Open(tb), b.Open(tb)
	confirmed := int64(1)
	for range 100 {
		if s, err := one.Load(within(tb), "order"); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(1500))*time.Microsecond)
			claim(ctx, one, s, 1)
			cancel()
		}
		for ctx := within(tb); ; {
			s, err := other.Load(ctx, "order")
			was := s.MaxID
			if err == nil {
				s, _, err = claim(ctx, other, s, 1+random.Int64N(100))
			}
			if err == nil && was < confirmed && confirmed > 1 {
				tb.Fatalf("a record with the end %d was replaced, though one with the end %d was confirmed before",
					was, confirmed)
			}
			if err == nil {
				confirmed = s.MaxID
				break
			}
			if ctx.Err() != nil {
				tb.Fatalf("claiming: %v", err)
			}
		}
	}
}

// recordSpoiled: a record that cannot be used is no record that is missing. Its name and its
// revision are known.
func recordSpoiled(tb testing.TB, b RecordsBackend) {
	for _, spoil := range []struct {
		name string
		by   func(testing.TB, string)
		err  error
	}{
		{"damaged", b.Damage, allocator.ErrDamaged},
		{"removed", b.Remove, allocator.ErrDamaged},
		{"newer", b.Newer, allocator.ErrNewer},
	} {
		if spoil.by == nil {
			continue
		}
		one, other := b.Open(tb), b.Open(tb)
		w := follow(tb, other)
		before := put(tb, one, trend(spoil.name, 5000))
		intact := put(tb, one, trend("intact", 5000))
		w.wait(tb, before)
		spoil.by(tb, spoil.name)
		late := follow(tb, b.Open(tb))
		var revision uint64
		for _, r := range []allocator.Records{one, other} {
			s, err := r.Load(within(tb), spoil.name)
			wantError(tb, "Load of a record that is "+spoil.name, err, spoil.err)
			if revision = s.Revision; s.Name != spoil.name || revision <= before.Revision {
				tb.Errorf("Load of a record that is %s: name %q, revision %d; want a revision above %d", spoil.name,
					s.Name, s.Revision, before.Revision)
			}
			for _, old := range []uint64{0, before.Revision} {
				_, err := r.Swap(within(tb), trend(spoil.name, 11), old)
				wantError(tb, fmt.Sprintf("Swap on revision %d of a record that is %s", old, spoil.name), err,
					allocator.ErrConflict)
			}
		}
		for _, f := range []*follower{w, late} {
			ctx := within(tb)
			for !errors.Is(f.now(spoil.name).Problem, spoil.err) || f.now(spoil.name).Revision != revision {
				if !sleep(ctx, poll) {
					tb.Fatalf("Watch brought %+v of a record that is %s, want the problem %v", f.now(spoil.name),
						spoil.name, spoil.err)
				}
			}
			f.wait(tb, intact)
		}
		load(tb, other, put(tb, one, trend(spoil.name, 6000))) // on its revision it can be replaced
	}
}

// recordContextDone: no method outlasts its context by much.
func recordContextDone(tb testing.TB, b RecordsBackend) {
	r := b.Open(tb)
	s := put(tb, r, trend("order", 11))
	for name, call := range map[string]func(context.Context) error{
		"Load":  func(ctx context.Context) error { _, err := r.Load(ctx, "order"); return err },
		"Swap":  func(ctx context.Context) error { _, err := r.Swap(ctx, trend("order", 21), s.Revision); return err },
		"Sync":  r.Sync,
		"Watch": func(ctx context.Context) error { return r.Watch(ctx, func(allocator.Update) {}) },
	} {
		for _, wait := range []time.Duration{0, time.Duration(1+rand.IntN(500)) * time.Microsecond} {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			begin := time.Now()
			err := call(ctx)
			if took := time.Since(begin); took > soon {
				tb.Errorf("%s took %v after its context was done", name, took)
			}
			if err == nil && (wait == 0 || name == "Sync" || name == "Watch") {
				tb.Errorf("%s returned no error when its context was done", name)
			}
			cancel()
		}
	}
}

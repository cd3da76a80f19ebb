package allocator_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestPassOnManyTags: two generators that pass on many tags to each other, some this way and some that way, do not keep each other from
// the store.
func TestPassOnManyTags(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const each = 80 // more than the writes at a time
		memory := newStrict(t, 1)
		names := []string{"one", "two"}
		as := make(map[string]*allocator.Allocator)
		passes := make(map[string]string) // by tag, who passes it on
		for i := range 2 * each {
			tag := strictTag(fmt.Sprint("tag", i))
			passes[tag.Name] = names[i/each]
			if _, err := memory.Create(t.Context(), tag); err != nil {
				t.Fatalf("Create: %v", err)
			}
		}
		var of [2]events
		var mu sync.Mutex
		calls := make(map[string]int)
		for i, name := range names {
			s := memory.twin()
			s.onReserve(func(ctx context.Context, tag string, _ int64) error {
				mu.Lock()
				calls[name+tag]++
				n := calls[name+tag]
				mu.Unlock()
				if passes[tag] == name && (n == 2 || n == 3) {
					return &allocator.OvertakenError{Tag: tag, Node: names[1-i]}
				}
				return sleep(ctx, time.Millisecond)
			})
			as[name] = start(t, allocator.Config{Store: s, Notify: of[i].notify, PassOn: func(ctx context.Context, node, tag string, n int64) (allocator.Range, error) {
				if err := sleep(ctx, time.Millisecond); err != nil { // the way there
					return allocator.Range{}, err
				}
				w, err := as[node].RequestForPeer(tag, n)
				if err != nil {
					return allocator.Range{}, err
				}
				ranges, err := w.Wait(ctx)
				if err != nil {
					return allocator.Range{}, err
				}
				return ranges[0], nil
			}})
		}
		all := func(both bool) (slowest time.Duration) {
			var callers sync.WaitGroup
			for tag := range passes {
				for _, name := range names {
					if !both && passes[tag] != name {
						continue
					}
					callers.Go(func() {
						begin := time.Now()
						if _, err := as[name].Take(t.Context(), tag, 1); err != nil {
							t.Errorf("Take: %v", err)
						}
						mu.Lock()
						defer mu.Unlock()
						slowest = max(slowest, time.Since(begin))
					})
				}
			}
			callers.Wait()
			return slowest
		}
		all(true) // learns that the tags are strict
		for i, both := range []bool{true, false, false, true} {
			if slowest := all(both); slowest > 100*time.Millisecond {
				t.Errorf("round %d: the slowest request took %v", i, slowest)
			}
		}
		for i := range of {
			if !slices.Contains(claimedBy(&of[i]), names[1-i]) {
				t.Errorf("%s passed nothing on", names[i])
			}
		}
	})
}

// TestTrendBesideStrict: many strict tags whose store answers slowly do not keep a trend tag from a database that is well.
func TestTrendBesideStrict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const tags = 1000
		s := newStrict(t, 1)
		s.create("trend", 1, 1)
		for i := range tags {
			if _, err := s.Create(t.Context(), strictTag(fmt.Sprint("tag", i))); err != nil {
				t.Fatalf("Create: %v", err)
			}
		}
		a := start(t, allocator.Config{Store: s})
		s.onReserve(func(ctx context.Context, tag string, _ int64) error {
			if tag == "trend" {
				return sleep(ctx, time.Millisecond)
			}
			return sleep(ctx, 200*time.Millisecond)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var callers sync.WaitGroup
		for i := range tags {
			callers.Go(func() {
				for ctx.Err() == nil {
					_, _ = a.Take(ctx, fmt.Sprint("tag", i), 1)
				}
			})
		}
		time.Sleep(8 * time.Second) // all are known to be strict now
		s.mu.Lock()
		s.most = 0
		s.mu.Unlock()
		var slowest time.Duration
		for range 20 {
			begin := time.Now()
			if _, err := a.Take(ctx, "trend", 5); err != nil {
				t.Errorf("Take: %v", err)
			}
			slowest = max(slowest, time.Since(begin))
		}
		if slowest > 100*time.Millisecond {
			t.Errorf("a request for IDs of the trend tag took %v", slowest)
		}
		cancel()
		callers.Wait()
		if s.most > 64+1 {
			t.Errorf("%d writes were under way at once, want 64 of strict tags and one", s.most)
		}
	})
}

// TestStrictTurn: a claim that has to wait for its turn takes what the requests need that came until then.
func TestStrictTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		a := startStrict(t, allocator.Config{Store: s})
		gates := make(chan struct{})
		s.onReserve(func(ctx context.Context, tag string, _ int64) error {
			if tag != "order" {
				<-gates
			}
			return nil
		})
		var callers sync.WaitGroup
		for i := range 64 { // known as strict
			tag := strictTag(fmt.Sprint("tag", i))
			if made, err := s.Create(t.Context(), tag); err != nil {
				t.Fatalf("Create: %v", err)
			} else {
				callers.Go(func() { _, _ = a.Take(t.Context(), made.Name, 1) })
				synctest.Wait()
				a.Apply(made)
			}
		}
		close(gates)
		callers.Wait()
		hold := make(chan struct{})
		s.onReserve(func(ctx context.Context, tag string, _ int64) error {
			if tag != "order" {
				<-hold
			}
			return nil
		})
		for i := range 64 {
			callers.Go(func() { _, _ = a.Take(t.Context(), fmt.Sprint("tag", i), 1) })
		}
		synctest.Wait()
		calls := len(s.reserves())
		one, two := request(t, a, 1), request(t, a, 2)
		close(hold)
		one.want(t, ids(11, 11))
		two.want(t, ids(12, 13))
		callers.Wait()
		wantClaims(t, s, calls, 3)
	})
}

// TestStrictFarStore: where each write takes longer than the first attempt may, only the first request pays for that.
func TestStrictFarStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		var r events
		a := startStrict(t, allocator.Config{Store: s, Notify: r.notify})
		s.slow(600 * time.Millisecond)
		take(t, a, 1) // the first attempt is in vain
		before := len(s.reserves())
		for range 10 {
			begin := time.Now()
			take(t, a, 1)
			if took := time.Since(begin); took > 700*time.Millisecond {
				t.Errorf("a request took %v", took)
			}
			time.Sleep(time.Second)
		}
		if n := len(s.reserves()) - before; n != 10 {
			t.Errorf("10 requests took %d writes", n)
		}
		r.wantEpisodes(t, "refill_failed", 1, 1)
	})
}

// TestStrictFarFirst: the first claim of a tag shows how far the store is, too.
func TestStrictFarFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		s.slow(600 * time.Millisecond)
		a := start(t, allocator.Config{Store: s})
		synctest.Wait() // the watch shows no buffer that the tag is strict
		for range 3 {
			take(t, a, 1)
		}
		wantClaims(t, s, 0, 1, 1, 1)
	})
}

// TestStrictHangsAfterSlow: also after a claim that took long, an answer that does not come is waited for for 4 s at most.
func TestStrictHangsAfterSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		a := start(t, allocator.Config{Store: s})
		synctest.Wait()
		s.slow(2500 * time.Millisecond)
		take(t, a, 1)
		s.onReserve(func(ctx context.Context, _ string, _ int64) error { <-ctx.Done(); return ctx.Err() })
		request(t, a, 1)
		time.Sleep(10 * time.Second)
		calls := s.reserves()
		if wait := calls[2].at.Sub(calls[1].at); wait < 4*time.Second || wait > 4100*time.Millisecond {
			t.Errorf("the next attempt came after %v", wait)
		}
		s.back()
	})
}

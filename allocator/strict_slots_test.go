package allocator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestPassOnTakesNoTurn: tags whose requests are passed on to a generator that does not answer do not keep others from
// the store.
func TestPassOnTakesNoTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const tags = 80 // more than the writes at a time
		s := newStrict(t, 1)
		a := startStrict(t, allocator.Config{Records: s, PassOn: func(ctx context.Context, _, _ string, _ int64) (allocator.Range, error) {
			return allocator.Range{}, sleep(ctx, time.Hour)
		}})
		s.onReserve(func(_ context.Context, tag string, _ int64) error {
			if tag == "order" {
				return nil
			}
			return &allocator.OvertakenError{Tag: tag, Run: "silent"}
		})
		for i := range tags {
			tag := strictTag(fmt.Sprint("tag", i))
			s.createTag(tag)
			queued(t, a, tag.Name, 1)
		}
		synctest.Wait()
		time.Sleep(100 * time.Millisecond) // all have met two conflicts
		begin := time.Now()
		take(t, a, 1)
		if took := time.Since(begin); took > 0 {
			t.Errorf("a request took %v", took)
		}
	})
}

// TestTrendBesideStrict: many strict tags whose store answers slowly do not keep a trend tag from a database that is
// well.
func TestTrendBesideStrict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const tags = 1000
		s := newStrict(t, 1)
		s.create("trend", 1, 1)
		for i := range tags {
			s.createTag(strictTag(fmt.Sprint("tag", i)))
		}
		a := start(t, allocator.Config{Records: s})
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
		a := startStrict(t, allocator.Config{Records: s})
		gates := make(chan struct{})
		s.onReserve(func(ctx context.Context, tag string, _ int64) error {
			if tag != "order" {
				<-gates
			}
			return nil
		})
		var callers sync.WaitGroup
		for i := range 64 { // known as strict
			made := s.createTag(strictTag(fmt.Sprint("tag", i)))
			callers.Go(func() { _, _ = a.Take(t.Context(), made.Name, 1) })
			synctest.Wait()
			a.Push(made)
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
		a := startStrict(t, allocator.Config{Records: s, Notify: r.notify})
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
		a := start(t, allocator.Config{Records: s})
		synctest.Wait() // the watch shows no buffer that the tag is strict
		for range 3 {
			take(t, a, 1)
		}
		wantClaims(t, s, 0, 1, 1, 1)
	})
}

// TestStrictHangsAfterSlow: also after a claim that took long, an answer that does not come is waited for for 4 s at
// most.
func TestStrictHangsAfterSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		a := start(t, allocator.Config{Records: s})
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

// TestHold: an operator's write keeps the claims of a strict tag back until it has ended, or for a time at most. Other
// tags go on.
func TestHold(t *testing.T) {
	for name, test := range map[string]struct {
		release time.Duration // 0: never
		want    time.Duration
	}{
		"released":   {release: 200 * time.Millisecond, want: 200 * time.Millisecond},
		"time is up": {want: time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, 10)
			s.createTag(strictTag("invoice"))
			a := start(t, allocator.Config{Records: s})
			take := func(tag string) (took time.Duration) {
				t.Helper()
				begun := time.Now()
				if _, err := a.Take(context.Background(), tag, 1); err != nil {
					t.Fatalf("Take: %v", err)
				}
				return time.Since(begun)
			}
			take("invoice")
			for _, tag := range []string{"invoice", "order", "unknown"} {
				a.Hold(tag, time.Second)
			}
			if test.release > 0 {
				time.AfterFunc(test.release, func() { a.Hold("invoice", 0) })
			}
			if took := take("order"); took > 0 {
				t.Errorf("an ID of a trend tag took %v", took)
			}
			if took := take("invoice"); took != test.want {
				t.Errorf("an ID of the strict tag took %v, want %v", took, test.want)
			}
			if took := take("invoice"); took > 0 {
				t.Errorf("afterwards an ID took %v", took)
			}
		})
	}
}

package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestAheadServesRequests: a request that comes while its tag is being loaded
// ahead is served by that range, and by a refill if it needs more.
func TestAheadServesRequests(t *testing.T) {
	for name, c := range map[string]struct {
		takes []int64
		calls []int64 // what is reserved
	}{
		"one":              {[]int64{1}, []int64{1, 10}}, // a tenth is used: the next segment
		"all":              {[]int64{10}, []int64{1, 10}},
		"several":          {[]int64{3, 4, 3}, []int64{1, 10}},
		"more than a step": {[]int64{25}, []int64{1, 15, 10}},
		"too many":         {[]int64{7, 7}, []int64{1, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newStore(t, 10)
				gate := s.gated()
				a := start(t, allocator.Config{Store: s, Recent: recentFile(t, "order"), MaxStep: 1})
				synctest.Wait()
				if n := len(s.reserves()); n != 1 {
					t.Fatalf("%d reservations", n)
				}
				next := int64(1)
				var waiters []*allocator.Waiter
				for _, n := range c.takes {
					_, w, err := a.Request(nil, "order", n)
					if w == nil || err != nil {
						t.Fatalf("Request: %v, %v", w, err)
					}
					waiters = append(waiters, w)
				}
				close(gate)
				for i, w := range waiters {
					ranges, err := w.Wait(t.Context())
					if err != nil {
						t.Fatalf("Wait: %v", err)
					}
					wantRanges(t, "Wait", ranges, allocator.Range{First: next, Last: next + c.takes[i] - 1})
					next += c.takes[i]
				}
				synctest.Wait()
				var calls []int64
				for _, c := range s.reserves() {
					calls = append(calls, c.n)
				}
				if !slices.Equal(calls[:min(len(calls), len(c.calls))], c.calls) {
					t.Errorf("reserved was %v, want %v", calls, c.calls)
				}
			})
		})
	}
}

// TestAheadFailsUnderRequests: who has queued while it was tried is served by a
// refill as ever, with its episodes.
func TestAheadFailsUnderRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		release := make(chan struct{})
		s.onReserve(func(context.Context, string, int64) error { <-release; return errAway })
		var r events
		a := start(t, allocator.Config{Store: s, Recent: recentFile(t, "order"), Notify: r.notify})
		synctest.Wait()
		_, w, err := a.Request(nil, "order", 1)
		if w == nil || err != nil {
			t.Fatalf("Request: %v, %v", w, err)
		}
		close(release)
		synctest.Wait()
		if n := len(s.reserves()); n != 2 {
			t.Errorf("%d attempts, want that to load ahead and that of a refill", n)
		}
		r.wantEpisodes(t, "refill_failed", 1, 0)
		s.back()
		if ranges, err := w.Wait(t.Context()); err != nil {
			t.Errorf("Wait: %v, %v", ranges, err)
		}
		synctest.Wait()
		r.wantEpisodes(t, "refill_failed", 1, 1)
		if a.Tags() != 1 || left(a) < 9 {
			t.Errorf("%d tags with %d IDs are in memory", a.Tags(), left(a))
		}
	})
}

// TestAheadStoreAway: a store that fails is not asked for every tag, and nobody
// is told: nobody wanted anything yet.
func TestAheadStoreAway(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"away":  func(context.Context) error { return errAway },
		"hangs": func(ctx context.Context) error { return sleep(ctx, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tags := many(1000)
				s := newStore(t, 10, tags...)
				s.onReserve(func(ctx context.Context, _ string, _ int64) error { return fail(ctx) })
				path := recentFile(t, tags...)
				begin := time.Now()
				var r events
				a, stop := startStop(t, allocator.Config{Store: s, Recent: path, Notify: r.notify})
				time.Sleep(time.Minute)
				if n := len(s.reserves()); n < givesUp || n > givesUp+atOnce-1 {
					t.Errorf("%d attempts, want about %d", n, givesUp)
				}
				failing := a.Failing().Tags
				if a.Tags() != 0 || failing != 0 || len(r.list) != 0 {
					t.Errorf("%d tags in memory, %d fail, told was %v", a.Tags(), failing, r.list)
				}
				s.back()
				takeOf(t, a, tags[0], 1)
				stop()
				// They were used today for all that.
				want := make(map[string]time.Time)
				for _, tag := range tags {
					want[tag] = begin
				}
				wantRecent(t, path, want)
			})
		})
	}
}

// TestAheadTagsInTrouble: what is wrong with tags does not keep the others from
// being loaded. Those that are unknown are forgotten.
func TestAheadTagsInTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		forgotten bool
	}{
		"unknown":   {allocator.ErrUnknownTag, true},
		"deleted":   {allocator.ErrDeleted, true},
		"exhausted": {allocator.ErrExhausted, false},
		"damaged":   {fmt.Errorf("%w: %w", allocator.ErrUnavailable, allocator.ErrDamaged), false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tags := many(30)
				good := append([]string{"z"}, tags[25:]...)
				s := newStore(t, 10, append(tags, "z")...)
				s.onReserve(func(_ context.Context, tag string, _ int64) error {
					if slices.Contains(good, tag) {
						return nil
					}
					return c.err
				})
				path := recentFile(t, append(tags, "z")...)
				begin := time.Now()
				var r events
				a, stop := startStop(t, allocator.Config{Store: s, Recent: path, Notify: r.notify})
				synctest.Wait()
				wantTags(t, a, 10, slices.Clone(good)...)
				if n := len(s.reserves()); n != 31 || len(r.list) != len(good) {
					t.Errorf("%d reservations, told was %v", n, r.list)
				}
				stop()
				want := map[string]time.Time{"z": begin}
				for _, tag := range tags {
					if slices.Contains(good, tag) || !c.forgotten {
						want[tag] = begin
					}
				}
				wantRecent(t, path, want)
			})
		})
	}
}

// TestAheadStoreRecovers: only failures in a row end it.
func TestAheadStoreRecovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tags := many(100)
		s := newStore(t, 10, tags...)
		s.onReserve(func(_ context.Context, tag string, _ int64) error {
			if strings.HasSuffix(tag, "0") || strings.HasSuffix(tag, "5") {
				return errAway
			}
			return nil
		})
		a := start(t, allocator.Config{Store: s, Recent: recentFile(t, tags...)})
		synctest.Wait()
		if a.Tags() != 80 || len(s.reserves()) != 100 {
			t.Errorf("%d tags in memory after %d attempts", a.Tags(), len(s.reserves()))
		}
	})
}

// TestAheadUnknown: who has queued for a tag that turns out to be none is refused.
func TestAheadUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		gate := s.gated()
		a := start(t, allocator.Config{Store: s, Recent: recentFile(t, "nobody")})
		synctest.Wait()
		_, w, err := a.Request(nil, "nobody", 1)
		if w == nil || err != nil {
			t.Fatalf("Request: %v, %v", w, err)
		}
		close(gate)
		if ranges, err := w.Wait(t.Context()); !errors.Is(err, allocator.ErrUnknownTag) {
			t.Errorf("Wait = %v, %v", ranges, err)
		}
		synctest.Wait()
		if a.Tags() != 0 {
			t.Errorf("%d tags in memory", a.Tags())
		}
	})
}

// TestAheadRegressed: a store that went backwards is told of and refused as
// when a request finds it.
func TestAheadRegressed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared(t, 10)
		var r events
		marks := allocator.NewMarks()
		marks.Observe("order", 1000)
		a, stop := startStop(t, allocator.Config{Store: s, Recent: recentFile(t, "order"), Marks: marks, Notify: r.notify})
		synctest.Wait()
		r.wantEpisodes(t, "regressed", 1, 0)
		refused(t, a, 1, allocator.ErrRegressed, 0)
		time.Sleep(time.Hour)
		if n := len(s.reserves()); n != 1 || left(a) != 0 {
			t.Errorf("%d reservations, %d IDs in memory", n, left(a))
		}
		s.move(1000)
		synctest.Wait()
		r.wantEpisodes(t, "regressed", 1, 1)
		wantRanges(t, "afterwards", take(t, a, 1), allocator.Range{First: 1000, Last: 1000})

		// One that is not over does not keep Run from ending.
		stop()
		marks.Observe("order", 5000)
		_, stop = startStop(t, allocator.Config{Store: s, Recent: recentFile(t, "order"), Marks: marks, Notify: r.notify})
		synctest.Wait()
		r.wantEpisodes(t, "regressed", 2, 1)
		stop()
	})
}

// TestAheadRegressedEverywhere: a store that went backwards as a whole is told
// of for a few tags, not for all.
func TestAheadRegressedEverywhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tags := many(1000)
		marks := allocator.NewMarks()
		for _, tag := range tags {
			marks.Observe(tag, 1000)
		}
		var r events
		start(t, allocator.Config{Store: newShared(t, 10, tags...), Recent: recentFile(t, tags...), Marks: marks, Notify: r.notify})
		synctest.Wait()
		if n := len(told[allocator.Regressed](&r)); n < givesUp || n > givesUp+atOnce-1 {
			t.Errorf("it was told %d times", n)
		}
	})
}

// TestAheadDelaysNobody: while a slow store is loaded from ahead, the watch is
// heard, other tags are served, and use is noted.
func TestAheadDelaysNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tags := many(1000)
		s := newStore(t, 10, tags...)
		s.onReserve(func(ctx context.Context, tag string, _ int64) error {
			if tag == "order" {
				return nil
			}
			return sleep(ctx, 4*time.Second)
		})
		path := recentFile(t, tags...)
		a := start(t, allocator.Config{Store: s, Recent: path})
		synctest.Wait()
		begin := time.Now()
		for range 100 {
			take(t, a, 7)
		}
		s.move(1_000_000)
		synctest.Wait()
		if got := left(a); got != 0 {
			t.Errorf("%d IDs in memory after max_id was moved past them", got)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v", took)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), recentLine("order", begin)) || a.Tags() == 1001 {
			t.Errorf("after %d tags were loaded the file, %v, does not have the one that was used", a.Tags(), err)
		}
	})
}

// TestRunEndsAhead: Run returns when what was being loaded has ended, and
// nothing more is begun. Who waits for it is refused.
func TestRunEndsAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tags := many(100)
		s := newStore(t, 10, tags...)
		release := make(chan struct{})
		s.onReserve(func(ctx context.Context, _ string, _ int64) error { <-release; return ctx.Err() })
		path := recentFile(t, tags...)
		begin := time.Now()
		a, stop := startStop(t, allocator.Config{Store: s, Recent: path})
		synctest.Wait()
		_, w, err := a.Request(nil, tags[0], 1)
		if w == nil || err != nil {
			t.Fatalf("Request: %v, %v", w, err)
		}
		ended := make(chan struct{})
		go func() { stop(); close(ended) }()
		if ranges, err := w.Wait(t.Context()); !errors.Is(err, allocator.ErrClosed) {
			t.Errorf("Wait = %v, %v", ranges, err)
		}
		synctest.Wait()
		select {
		case <-ended:
			t.Error("Run did not wait")
		default:
		}
		close(release)
		<-ended
		if n := len(s.reserves()); n != atOnce {
			t.Errorf("%d reservations, want the %d that were under way", n, atOnce)
		}
		want := make(map[string]time.Time)
		for _, tag := range tags {
			want[tag] = begin
		}
		wantRecent(t, path, want)
	})
}

// TestAheadOnlyWhatIsEmpty: a tag that requests have loaded by then, or are
// loading, is left alone; those after it are not.
func TestAheadOnlyWhatIsEmpty(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tags := many(atOnce + 20) // the first of them keep the others waiting
		loaded, loading, last := tags[atOnce:atOnce+9], tags[atOnce+9:atOnce+18], tags[atOnce+18:]
		s := newStore(t, 10, tags...)
		first, second := make(chan struct{}), make(chan struct{})
		s.onReserve(func(_ context.Context, tag string, _ int64) error {
			switch {
			case slices.Contains(tags[:atOnce], tag):
				<-first
			case slices.Contains(loading, tag):
				<-second
			}
			return nil
		})
		a := start(t, allocator.Config{Store: s, Recent: recentFile(t, tags...)})
		synctest.Wait()
		for _, tag := range loaded {
			takeOf(t, a, tag, 10)
		}
		for _, tag := range loading {
			if _, w, err := a.Request(nil, tag, 1); w == nil || err != nil {
				t.Fatalf("Request: %v, %v", w, err)
			}
		}
		synctest.Wait()
		before := len(s.reserves())
		close(first)
		synctest.Wait()
		var calls []string
		for _, c := range s.reserves()[before:] {
			calls = append(calls, c.tag)
		}
		if slices.Sort(calls); !slices.Equal(calls, last) {
			t.Errorf("loaded were %v, want %v", calls, last)
		}
		close(second)
	})
}

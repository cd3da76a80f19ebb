package allocator_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestAheadFailsUnderRequests: who has queued while it was tried is served by a
// refill as ever, with its episodes.
func TestAheadFailsUnderRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		release := make(chan struct{})
		s.onReserve(func(context.Context, string, int64) error { <-release; return errAway })
		var r events
		a := start(t, allocator.Config{Records: s, Recent: recentFile(t, "order"), Notify: r.notify})
		synctest.Wait()
		w := queued(t, a, "order", 1)
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
// is reported: nobody wanted anything yet.
func TestAheadStoreAway(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"away":  func(context.Context) error { return errAway },
		"hangs": func(ctx context.Context) error { return sleep(ctx, time.Hour) },
	} {
		inBubble(t, name, func(t *testing.T) {
			tags := many(1000)
			s := newStore(t, 10, tags...)
			s.onReserve(func(ctx context.Context, _ string, _ int64) error { return fail(ctx) })
			path := recentFile(t, tags...)
			begin := time.Now()
			var r events
			a, stop := startStop(t, allocator.Config{Records: s, Recent: path, Notify: r.notify})
			time.Sleep(time.Minute)
			if n := len(s.reserves()); n < givesUp || n > givesUp+atOnce-1 {
				t.Errorf("%d attempts, want about %d", n, givesUp)
			}
			failing := a.Failing().Tags
			if a.Tags() != 0 || failing != 0 || len(r.list) != 0 {
				t.Errorf("%d tags in memory, %d fail, published was %v", a.Tags(), failing, r.list)
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
	}
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
		a, stop := startStop(t, allocator.Config{Records: s, Recent: path})
		synctest.Wait()
		w := queued(t, a, tags[0], 1)
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
		a := start(t, allocator.Config{Records: s, Recent: recentFile(t, tags...)})
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

package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// atOnce is how many tags are loaded ahead at a time, givesUp the failures in a
// row that end it.
const atOnce, givesUp = 4, 8

// newUsed returns a store of tags of which a range was claimed just now.
func newUsed(t *testing.T, tags ...string) *store {
	t.Helper()
	s := newStore(t, 10, slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return tag == "order" })...)
	for _, tag := range tags {
		s.claim(tag, 10)
	}
	return s
}

// takeOf takes n IDs of a tag, then lets everything that follows happen.
func takeOf(t *testing.T, a *allocator.Allocator, tag string, n int64) []allocator.Range {
	t.Helper()
	ranges, err := a.Take(t.Context(), tag, n)
	if err != nil {
		t.Fatalf("Take(%s, %d): %v", tag, n, err)
	}
	synctest.Wait()
	return ranges
}

// wantTags checks which tags are in memory, all with a segment of the step.
func wantTags(t *testing.T, a *allocator.Allocator, step int64, want ...string) {
	t.Helper()
	var got []string
	for _, v := range a.Views(allocator.Query{Limit: math.MaxInt32}) {
		got = append(got, v.Tag)
		if v.Left != step || len(v.Segments) != 1 || v.Step != step || v.State != "ok" || v.Taken != 0 {
			t.Errorf("%s has %+v", v.Tag, v)
		}
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("in memory are %v, want %v", got, want)
	}
}

// many returns tag names in their order.
func many(n int) (tags []string) {
	for i := range n {
		tags = append(tags, fmt.Sprintf("tag%03d", i))
	}
	return tags
}

// TestAhead: a start reserves one segment for each tag of which any generator claimed a range in the last day, the last
// one first, a few at a time.
func TestAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tags := many(30)
		s := newStore(t, 10, append(tags, "never")...)
		s.createTag(strictTag("invoice")) // nothing of a strict tag can be loaded ahead
		used := tags[5:25]
		for _, tag := range tags[:5] {
			s.claim(tag, 10)
		}
		time.Sleep(2 * time.Hour)
		for _, tag := range used[:8] {
			s.claim(tag, 10)
		}
		time.Sleep(time.Hour)
		for _, tag := range append([]string{"invoice"}, used[8:]...) {
			s.claim(tag, 10)
		}
		s.write(tags[29], func(old allocator.Stored) (allocator.Tag, error) { // used, and deleted
			old.Last = allocator.Claim{First: 1, Last: 1, Time: time.Now()}
			return old.Delete(0)
		})
		time.Sleep(22 * time.Hour)

		s.slow(100 * time.Millisecond)
		var r events
		paced := 0
		a := start(t, allocator.Config{Records: s, LoadAhead: true, Notify: r.notify, Pace: func(context.Context) { paced++ }})
		time.Sleep(time.Minute)
		wantTags(t, a, 10, slices.Clone(used)...)
		if paced != len(used) {
			t.Errorf("paced were %d of %d", paced, len(used))
		}
		calls := s.reserves()
		if len(calls) != len(used) || s.most != atOnce {
			t.Errorf("%d reservations, up to %d at once; want %d and %d", len(calls), s.most, len(used), atOnce)
		}
		for i, c := range calls {
			if late := slices.Index(used, c.tag) >= 8; late != (i < 12) || c.n != 1 {
				t.Errorf("reservation %d is of %d IDs of %s", i+1, c.n, c.tag)
			}
		}
		for _, e := range published[allocator.Refilled](&r) {
			if e.Cause != allocator.CausePrefetch || e.Step != 10 {
				t.Errorf("published was %+v", e)
			}
		}
		// From here on all is as ever: the second segment has the tag's step too.
		s.back()
		takeOf(t, a, used[0], 1)
		if c := s.reserves()[len(calls):]; len(c) != 1 || c[0].n != 10 || c[0].tag != used[0] {
			t.Errorf("the first ID led to %+v", c)
		}
	})
}

// TestAheadFailsUnderRequests: who has queued while it was tried is served by a
// refill as ever, with its episodes.
func TestAheadFailsUnderRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newUsed(t, "order")
		release := make(chan struct{})
		s.onReserve(func(context.Context, string, int64) error { <-release; return errAway })
		var r events
		a := start(t, allocator.Config{Records: s, LoadAhead: true, Notify: r.notify})
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
			s := newUsed(t, tags...)
			s.onReserve(func(ctx context.Context, _ string, _ int64) error { return fail(ctx) })
			var r events
			a := start(t, allocator.Config{Records: s, LoadAhead: true, Notify: r.notify})
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
		})
	}
}

// TestRunEndsAhead: Run returns when what was being loaded has ended, and
// nothing more is begun. Who waits for it is refused.
func TestRunEndsAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tags := many(100)
		s := newUsed(t, tags...)
		release := make(chan struct{})
		s.onReserve(func(ctx context.Context, _ string, _ int64) error { <-release; return ctx.Err() })
		a, stop := startStop(t, allocator.Config{Records: s, LoadAhead: true})
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
	})
}

// TestAheadOnlyWhatIsEmpty: a tag that requests have loaded by then, or are
// loading, is left alone; those after it are not.
func TestAheadOnlyWhatIsEmpty(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tags := many(atOnce + 20) // the first of them keep the others waiting
		loaded, loading, last := tags[atOnce:atOnce+9], tags[atOnce+9:atOnce+18], tags[atOnce+18:]
		s := newUsed(t, tags...)
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
		a := start(t, allocator.Config{Records: s, LoadAhead: true})
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

package allocator_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestUnavailable: the store fails. Who waits learns it after MaxWait; once it
// has failed that long, at once.
func TestUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		s.away()
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify})
		check := func(err error) {
			t.Helper()
			away, ok := errors.AsType[*allocator.UnavailableError](err)
			if !ok || !errors.Is(err, errAway) {
				t.Fatalf("error %v, want an UnavailableError with its cause", err)
			}
			if away.RetryAfter < 0 || away.RetryAfter > time.Second {
				t.Errorf("RetryAfter is %v", away.RetryAfter)
			}
		}
		time.Sleep(time.Minute)
		check(refused(t, a, 1, allocator.ErrUnavailable, 3*time.Second))
		var sum time.Duration
		for range 20 {
			err := refused(t, a, 1, allocator.ErrUnavailable, 0)
			check(err)
			away, _ := errors.AsType[*allocator.UnavailableError](err)
			sum += away.RetryAfter
			time.Sleep(37 * time.Millisecond)
		}
		if sum == 0 {
			t.Errorf("RetryAfter was always 0")
		}
		if got := published[allocator.Starved](&r); len(got) != 1 || got[0].Waiting != 1 {
			t.Errorf("starved was published as %+v, want once with 1 request that waits", got)
		}
		s.back()
		time.Sleep(time.Second) // it recovers by itself
		if got := left(a); got != 100 {
			t.Errorf("%d IDs are in memory, want 100", got)
		}
		begin := time.Now()
		take(t, a, 1)
		if took := time.Since(begin); took != 0 {
			t.Errorf("after the store came back a request took %v", took)
		}
		for _, episode := range []string{"refill_failed", "starved"} {
			r.wantEpisodes(t, episode, 1, 1)
		}
	})
}

// TestCancelledWaiter: a request's context is its own affair.
func TestCancelledWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		s.slow(2 * time.Second)
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify})
		gone := errors.New("the caller is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		ranges, err := a.Take(ctx, "order", 30)
		if !errors.Is(err, gone) || ranges != nil {
			t.Errorf("Take = %v, %v; want the context's cause", ranges, err)
		}
		if a.Waiting() != 0 {
			t.Errorf("%d requests wait", a.Waiting())
		}
		time.Sleep(time.Second)
		if got := left(a); got != 100 {
			t.Errorf("%d IDs are in memory, want all 100 that were reserved", got)
		}
		if len(s.reserves()) != 1 {
			t.Errorf("the refill was tried again: %v", s.reserves())
		}
		r.wantEpisodes(t, "starved", 0, 0)
		// What it lacked is not wanted any more.
		take(t, a, 1000)
		if n := s.reserves()[1].n; n != 900 {
			t.Errorf("%d IDs were reserved for 1000 with 100 in memory", n)
		}
		r.wantEpisodes(t, "refill_failed", 0, 0)
	})
}

func TestOverloaded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100, "other")
		gate := s.gated()
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify, MaxWaiting: 3})
		var waiters []*allocator.Later
		for _, tag := range []string{"order", "other", "order"} { // all tags together
			w := queued(t, a, tag, 2)
			waiters = append(waiters, w)
		}
		for range 10 {
			refused(t, a, 5, allocator.ErrOverloaded, 0)
		}
		if got := published[allocator.Starved](&r); len(got) != 1 || got[0].Waiting != 3 {
			t.Errorf("starved was published as %+v, want once with the 3 requests of the tag", got)
		}
		gate <- struct{}{}
		gate <- struct{}{}
		for i, want := range []int64{1, 1, 3} {
			ranges, err := waiters[i].Wait(t.Context())
			if err != nil {
				t.Fatalf("Wait: %v", err)
			}
			wantRanges(t, "Wait", ranges, allocator.Range{First: want, Last: want + 1})
		}
		if got := a.Waiting(); got != 0 {
			t.Errorf("%d requests wait", got)
		}
		// The refused ones took nothing.
		wantRanges(t, "afterwards", take(t, a, 5), allocator.Range{First: 5, Last: 9})
		r.wantEpisodes(t, "starved", 1, 1)
	})
}

// TestClosed: at the end of Run waiters are refused and refills end; memory is
// served on. That no goroutine is left is for the bubble to check.
func TestClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10, "other", "third")
		var r events
		a, stop := startStop(t, allocator.Config{Records: s, Notify: r.notify})
		take(t, a, 1) // and 11-20 is loaded
		gate := s.gated()
		defer close(gate)
		if _, _, err := a.Request(nil, "third", 1); err != nil { // nobody waits for this one
			t.Fatal(err)
		}
		failed := make(chan error)
		for _, tag := range []string{"order", "other"} {
			go func() {
				_, err := a.Take(t.Context(), tag, 100)
				failed <- err
			}()
		}
		synctest.Wait()
		begin := time.Now()
		stop()
		for range 2 {
			if err := <-failed; !errors.Is(err, allocator.ErrClosed) {
				t.Errorf("a waiting request got %v, want ErrClosed", err)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("the end took %v", took)
		}
		wantRanges(t, "from memory", take(t, a, 19), allocator.Range{First: 2, Last: 20})
		refused(t, a, 1, allocator.ErrClosed, 0)
		if _, err := a.Take(t.Context(), "never.used", 1); !errors.Is(err, allocator.ErrClosed) {
			t.Errorf("a new tag got %v, want ErrClosed", err)
		}
		if got := a.Waiting(); got != 0 {
			t.Errorf("%d requests wait", got)
		}
		r.wantEpisodes(t, "refill_failed", 0, 0)
	})
}

// TestReportedBeforeUse: a range is an event before an ID of it is handed out.
func TestReportedBeforeUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var used atomic.Bool
		var reports atomic.Int64
		a := start(t, allocator.Config{Records: unwatched{newStore(t, 100)}, Notify: func(e allocator.Event) {
			if r, ok := e.(allocator.Refilled); ok {
				synctest.Wait() // until a caller that has IDs of it already has said so
				reports.Add(1)
				if used.Load() {
					t.Errorf("%v was reported, and is in use already", r.Range)
				}
			}
		}})
		go func() {
			if _, err := a.Take(t.Context(), "order", 1); err != nil {
				t.Error(err)
			}
			used.Store(true)
		}()
		time.Sleep(time.Second)
		if n := reports.Load(); n != 1 || !used.Load() {
			t.Errorf("%d ranges were reported, in use: %v", n, used.Load())
		}
	})
}

// A request is slow after 100 ms, at once where refills fail, and of a strict tag when the first claim must have
// failed. Then it can be withdrawn, once, and gets nothing.
func TestSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		s.createTag(strictTag("invoice"))
		a := start(t, allocator.Config{Records: s})
		slow := func(tag string, n int64, withdraw bool) (after time.Duration) {
			t.Helper()
			w := queued(t, a, tag, n)
			begin, answered := time.Now(), make(chan bool, 2)
			w.Then(func([]allocator.Range, error) { answered <- true }, func() {
				if after = time.Since(begin); withdraw != w.Withdraw() {
					t.Error("it can be withdrawn, or cannot, by mistake")
				}
			})
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if n := len(answered); n == 1 == withdraw || n > 1 || w.Withdraw() || a.Waiting() > 0 {
				t.Errorf("answered %d times, and %d wait", n, a.Waiting())
			}
			return after
		}
		for i, c := range []struct {
			tag   string
			n     int64
			away  bool
			after time.Duration
		}{
			{"order", 10, false, 100 * time.Millisecond},
			{"order", 100, true, 100 * time.Millisecond},
			{"order", 1000, true, time.Millisecond},
			{"invoice", 1, false, 100 * time.Millisecond}, // nobody knows yet that it is strict
			{"invoice", 1, false, 600 * time.Millisecond},
		} {
			if s.back(); c.away {
				s.away()
			} else {
				s.slow(time.Second)
			}
			if after := slow(c.tag, c.n, true); after != c.after {
				t.Errorf("%d: slow after %v, want %v", i, after, c.after)
			}
		}
		s.back()
		if after := slow("order", 5000, false); after != 0 {
			t.Errorf("it was served, and slow after %v", after)
		}
	})
}

// What a generator offers to others is what a request could get at once.
func TestHas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10, "other")
		s.createTag(strictTag("invoice"))
		a := start(t, allocator.Config{Records: s})
		want := func(tag string, left int64, refills bool) {
			t.Helper()
			synctest.Wait()
			if l, r := a.Has(tag); l != left || r != refills {
				t.Errorf("%s: %d, %v; want %d, %v", tag, l, r, left, refills)
			}
		}
		want("order", 0, true)
		take(t, a, 4)
		want("order", 16, true) // the next segment is there
		want("invoice", 0, true)
		if _, err := a.Take(t.Context(), "invoice", 1); err != nil {
			t.Fatal(err)
		}
		want("invoice", 0, true)
		s.away()
		large := queued(t, a, "order", 100)
		want("order", 16, false) // a request for more than that waits, and others do not wait for it
		for _, tag := range []string{"order", "invoice"} {
			if _, err := a.Take(t.Context(), tag, 100); err == nil {
				t.Error("it came from a store that is away")
			}
		}
		if _, err := large.Wait(t.Context()); err == nil {
			t.Error("it came from a store that is away")
		}
		want("order", 16, false)
		want("invoice", 0, false)
		want("other", 0, false)
	})
}

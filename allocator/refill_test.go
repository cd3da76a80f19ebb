package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// TestStepChanged: an operator's step counts, also where it comes while a refill is under way.
func TestStepChanged(t *testing.T) {
	for _, step := range []int64{50, 5000} {
		inBubble(t, fmt.Sprint(step), func(t *testing.T) {
			s := newStore(t, 100)
			var r events
			a := start(t, allocator.Config{Records: unwatched{s}, Notify: r.notify})
			refills := func() []allocator.Refilled { return published[allocator.Refilled](&r) }
			for len(refills()) == 0 || refills()[len(refills())-1].Step < 1600 {
				take(t, a, 1)
			}
			gate := s.gated()
			for calls := len(s.reserves()); len(s.reserves()) == calls; {
				take(t, a, 1)
			}
			before := len(refills())
			a.Push(s.restep(step))
			gate <- struct{}{}
			synctest.Wait()
			s.back()
			for len(refills()) < before+3 {
				take(t, a, 1)
			}
			var steps []int64
			for _, e := range refills()[before+1:] {
				steps = append(steps, e.Step)
			}
			// The first refill after the change may count as the first or second.
			if steps[0] != step && steps[0] != 2*step || steps[1] > 2*steps[0] || steps[1] < steps[0] {
				t.Errorf("after the step was set to %d: %v", step, steps)
			}
		})
	}
}

// unwatched is a store whose changes are not seen unless Push is called.
type unwatched struct{ *store }

func (unwatched) Watch(ctx context.Context, _ func(allocator.Update)) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestOneRefillAtATime: the store fails the test if there are two.
func TestOneRefillAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		random := allocatortest.Seed(t)
		s := newStore(t, 5)
		s.slow(10 * time.Millisecond)
		a := start(t, allocator.Config{Records: s, MaxStep: 10})
		done := make(chan struct{})
		const callers = 30
		for range callers {
			n := 1 + random.Int64N(8)
			go func() {
				defer func() { done <- struct{}{} }()
				for i := range 60 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
					a.Take(ctx, "order", n)
					cancel()
					time.Sleep(time.Duration(n) * time.Millisecond)
				}
			}()
		}
		for range callers {
			<-done
		}
		if len(s.reserves()) < 10 {
			t.Errorf("only %d refills", len(s.reserves()))
		}
	})
}

// TestRefillsAreBounded: however many tags want one, only so many writes are
// under way.
func TestRefillsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tags []string
		for i := range 300 {
			tags = append(tags, fmt.Sprintf("tag%d", i))
		}
		s := newStore(t, 10, tags...)
		s.slow(100 * time.Millisecond)
		a := start(t, allocator.Config{Records: s})
		done := make(chan error)
		for _, tag := range tags {
			go func() {
				_, err := a.Take(t.Context(), tag, 1)
				done <- err
			}()
		}
		for range tags {
			if err := <-done; err != nil {
				t.Errorf("Take: %v", err)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.most != 64 {
			t.Errorf("%d writes were under way at once, want 64", s.most)
		}
	})
}

// TestPausesBeginAnew: after a success the first pause is a short one again.
func TestPausesBeginAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 1)
		well := make(map[int]bool) // attempts that succeed
		for _, i := range []int{7, 8, 15} {
			well[i] = true
		}
		attempt := 0
		s.onReserve(func(context.Context, string, int64) error {
			if attempt++; well[attempt] {
				return nil
			}
			return errAway
		})
		a := start(t, allocator.Config{Records: s, MaxStep: 1, MaxWait: time.Hour})
		// Each ID that comes is taken: one refill goes on through it all.
		go func() {
			for {
				if _, err := a.Take(t.Context(), "order", 1); err != nil {
					return
				}
			}
		}()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		calls := s.reserves()
		pause := func(i int) time.Duration { return calls[i].at.Sub(calls[i-1].at) } // after attempt i
		for _, i := range []int{1, 9, 16} {
			if got := pause(i); got < 25*time.Millisecond || got > 50*time.Millisecond {
				t.Errorf("the pause after attempt %d is %v, want 25 to 50 ms", i, got)
			}
		}
		for _, i := range []int{6, 14} {
			if got := pause(i); got < 500*time.Millisecond {
				t.Errorf("the pause after attempt %d is %v, want 500 ms or more", i, got)
			}
		}
	})
}

// TestNonsense: what cannot be a range is no range.
func TestNonsense(t *testing.T) {
	for name, g := range map[string]allocator.Grant{
		"empty":         {},
		"zero":          {Range: allocator.Range{First: 0, Last: 9}, Step: 10},
		"negative":      {Range: allocator.Range{First: math.MinInt64, Last: -1}, Step: 10},
		"wrapped":       {Range: allocator.Range{First: math.MaxInt64 - 5, Last: math.MinInt64 + 5}, Step: 10},
		"largest int64": {Range: allocator.Range{First: math.MaxInt64 - 5, Last: math.MaxInt64}, Step: 10},
		"backwards":     {Range: allocator.Range{First: 10, Last: 9}, Step: 10},
		"step 0":        {Range: allocator.Range{First: 1, Last: 10}, Step: 0},
		"negative step": {Range: allocator.Range{First: 1, Last: 10}, Step: -10},
	} {
		if g.Check(0) == nil {
			t.Errorf("%s: %+v is a range", name, g)
		}
	}
}

// TestWatchBreaks: it is begun again.
func TestWatchBreaks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &breaking{store: newStore(t, 10)}
		a := start(t, allocator.Config{Records: s})
		take(t, a, 1)
		time.Sleep(time.Minute)
		if n := s.watches.Load(); n < 50 || n > 62 {
			t.Errorf("%d watches in a minute that break at once", n)
		}
		s.whole.Store(true)
		s.move(1000)
		time.Sleep(2 * time.Second)
		if got := left(a); got != 0 {
			t.Errorf("%d IDs in memory after max_id was moved past them", got)
		}
	})
}

type breaking struct {
	*store
	watches atomic.Int64
	whole   atomic.Bool
}

func (s *breaking) Watch(ctx context.Context, f func(allocator.Update)) error {
	s.watches.Add(1)
	if s.whole.Load() {
		return s.store.Watch(ctx, f)
	}
	return errAway
}

// TestLockedTags: tags whose record is locked wait for the store for long. They must not keep the
// others from it, nor pass for a store that fails.
func TestLockedTags(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tags []string
		for i := range 200 {
			tags = append(tags, fmt.Sprintf("locked%d", i))
		}
		s := newStore(t, 10, tags...)
		var waiting, most int // in Reserve
		s.onReserve(func(ctx context.Context, tag string, _ int64) error {
			if tag == "order" {
				return nil
			}
			s.mu.Lock()
			waiting++
			most = max(most, waiting)
			s.mu.Unlock()
			err := sleep(ctx, time.Second)
			s.mu.Lock()
			waiting--
			s.mu.Unlock()
			return errors.Join(allocator.ErrLocked, err)
		})
		a := start(t, allocator.Config{Records: s})
		for _, tag := range tags {
			queued(t, a, tag, 1)
		}
		time.Sleep(10 * time.Second) // each was tried once
		s.mu.Lock()
		most = 0
		s.mu.Unlock()
		for range 30 {
			began := time.Now()
			take(t, a, 10)
			if took := time.Since(began); took > 0 {
				t.Errorf("a tag that is not locked waited for %v", took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if most < 1 || most > 8 {
			t.Errorf("%d locked tags were tried at a time, want 1 to 8", most)
		}
		if f := a.Failing(); f.Tags != len(tags) || f.Store != nil || f.Dry != nil {
			t.Errorf("Failing() = %+v; want all that are locked, and a store that works", f)
		}
	})
}

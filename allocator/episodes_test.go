package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestEpisodes: an outage is published once, and its end once.
func TestEpisodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify})
		take(t, a, 1)
		for outage := 1; outage <= 3; outage++ {
			s.away()
			done := make(chan struct{})
			const callers = 40
			for i := range callers {
				go func() {
					defer func() { done <- struct{}{} }()
					for range 10 {
						a.Take(t.Context(), "order", int64(1+i%3))
						time.Sleep(300 * time.Millisecond)
					}
				}()
			}
			for range callers {
				<-done
			}
			if f := a.Failing(); f.Tags != 1 || !errors.Is(f.Dry, errAway) || !errors.Is(f.Store, errAway) {
				t.Errorf("Failing() = %+v during the outage", f)
			}
			if v := a.Views(allocator.Query{Limit: 1})[0]; v.State != "failing" || v.Error != errAway.Error() {
				t.Errorf("the view is %+v", v)
			}
			r.wantEpisodes(t, "refill_failed", outage, outage-1)
			r.wantEpisodes(t, "starved", outage, outage-1)
			_, _, late := a.Request(nil, "order", 1)
			if late == nil {
				t.Fatal("it got an ID")
			}
			s.back()
			time.Sleep(time.Second)
			synctest.Wait()
			a.Refused("order", late) // its caller gets the error after the outage
			r.wantEpisodes(t, "refill_failed", outage, outage)
			r.wantEpisodes(t, "starved", outage, outage)
			if f := a.Failing(); f.Tags != 0 || f.Dry != nil {
				t.Errorf("Failing() = %+v after the outage", f)
			}
		}
		for _, e := range published[allocator.RefillFailed](&r) {
			if e.Tag != "order" || !errors.Is(e.Err, errAway) {
				t.Errorf("%+v", e)
			}
		}
	})
}

// TestEpisodesEndWithTheTag: a tag that is deleted, or has no IDs left, does
// not stay in trouble for ever.
func TestEpisodesEndWithTheTag(t *testing.T) {
	for name, end := range map[string]func(*store){
		"deleted": func(s *store) { s.remove() },
		"exhausted": func(s *store) {
			s.move(math.MaxInt64)
		},
	} {
		for _, refused := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, starved %v", name, refused), func(t *testing.T) {
				s := newStore(t, 10)
				var r events
				a := start(t, allocator.Config{Records: s, Notify: r.notify})
				s.away()
				wait := time.Second
				if refused {
					wait = 5 * time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				if _, err := a.Take(ctx, "order", 1); err == nil {
					t.Fatal("Take succeeded")
				}
				end(s)
				s.back()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				r.wantEpisodes(t, "refill_failed", 1, 1)
				if refused {
					r.wantEpisodes(t, "starved", 1, 1)
				}
				if f := a.Failing(); f.Tags != 0 || f.Dry != nil {
					t.Errorf("Failing() = %+v", f)
				}
			})
		}
	}
}

// TestEpisodesOfUnknownTags: while the store is away any caller can ask for any name. Only tags that are known raise
// alerts, those too that were not used yet.
func TestEpisodesOfUnknownTags(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10, "unused-1", "unused-2")
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify})
		take(t, a, 10)
		s.away()
		for outage := 1; outage <= 2; outage++ {
			queued(t, a, fmt.Sprint("unused-", outage), 1)
			for i := range 300 {
				queued(t, a, fmt.Sprint("made-up-", i), 1)
			}
			time.Sleep(2 * time.Second)
			for range 30 { // more than there is
				a.Take(t.Context(), "order", 1)
			}
			r.wantEpisodes(t, "refill_failed", 2*outage, 2*(outage-1))
			s.back()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			r.wantEpisodes(t, "refill_failed", 2*outage, 2*outage)
			r.wantEpisodes(t, "starved", outage, outage)
			s.away()
		}
	})
}

// Callers who ask for names of their own making while the store is away must
// not fill the memory.
func TestUnknownTagsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, 10)
		s.away()
		a := start(t, allocator.Config{Records: s})
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				if _, err := a.Take(t.Context(), fmt.Sprint("made-up-", i), 1); !errors.Is(err, allocator.ErrUnavailable) {
					t.Errorf("Take: %v", err)
				}
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Second)
		if n := a.Tags(); n > 1000 {
			t.Errorf("%d tags that may not exist are kept", n)
		}
	})
}

// Nor those that are refused for overload.
func TestOverloadLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, 10)
		s.away()
		a := start(t, allocator.Config{Records: s, MaxWaiting: 1})
		queued(t, a, "first", 1)
		for i := range 100 {
			if _, _, err := a.Request(nil, fmt.Sprint("made-up-", i), 1); !errors.Is(err, allocator.ErrOverloaded) {
				t.Fatalf("Request: %v", err)
			}
		}
		if n := a.Tags(); n != 1 {
			t.Errorf("%d tags are kept, want the one that waits", n)
		}
	})
}

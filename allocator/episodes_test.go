package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestEpisodes: an outage is told once, and its end once.
func TestEpisodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r events
		a := start(t, allocator.Config{Store: s, Notify: r.notify})
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
			s.back()
			time.Sleep(time.Second)
			synctest.Wait()
			r.wantEpisodes(t, "refill_failed", outage, outage)
			r.wantEpisodes(t, "starved", outage, outage)
			if f := a.Failing(); f.Tags != 0 || f.Dry != nil {
				t.Errorf("Failing() = %+v after the outage", f)
			}
		}
		for _, e := range told[allocator.RefillFailed](&r) {
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
			t.Run(fmt.Sprintf("%s, starved %v", name, refused), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := newStore(t, 10)
					var r events
					a := start(t, allocator.Config{Store: s, Notify: r.notify})
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
			})
		}
	}
}

// TestEpisodesOfForgottenTags: a request that is refused for overload begins an episode also
// for a tag that is not kept for it, and the end is told after the beginning.
func TestEpisodesOfForgottenTags(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10, "other")
		s.away()
		var r events
		a := start(t, allocator.Config{Store: s, Notify: r.notify, MaxWaiting: 1})
		synctest.Wait() // the watch has shown the tags: later it would make them known
		if _, w, err := a.Request(nil, "order", 1); w == nil || err != nil {
			t.Fatalf("the first request: %v", err)
		}
		if _, _, err := a.Request(nil, "other", 1); !errors.Is(err, allocator.ErrOverloaded) {
			t.Fatalf("the second request: %v", err)
		}
		got := slices.DeleteFunc(told[allocator.Event](&r), func(e allocator.Event) bool { // the refill may have failed by now
			failed, ok := e.(allocator.RefillFailed)
			return ok && failed.Tag == "order"
		})
		want := []allocator.Event{allocator.Starved{Tag: "other", Waiting: 1}, allocator.Recovered{Tag: "other", Episode: "starved"}}
		if !slices.Equal(got, want) {
			t.Errorf("told was %+v, want %+v", got, want)
		}
	})
}

// TestEpisodesOfAStoreThatWentBack: one that was away and comes back older answers again. What
// is wrong with the tag does not count as a store that fails, which would have the generator
// step aside for all tags until an operator comes.
func TestEpisodesOfAStoreThatWentBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newShared(t, 10)
		var r events
		a := start(t, allocator.Config{Store: s, Notify: r.notify})
		backup := s.Snapshot()
		take(t, a, 1)
		s.away()
		for range 20 { // more than there is
			a.Take(t.Context(), "order", 1)
		}
		r.wantEpisodes(t, "refill_failed", 1, 0)
		s.Restore(backup)
		s.back()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		refused(t, a, 1, allocator.ErrRegressed, 0)
		r.wantEpisodes(t, "refill_failed", 1, 1)
		r.wantEpisodes(t, "regressed", 1, 0)
		if f := a.Failing(); f.Tags != 0 || f.Store != nil || f.Dry != nil {
			t.Errorf("the store answers, and %+v", f)
		}
	})
}

// TestEpisodesInOrder: a refill that ends an episode while its beginning is being told is told
// after it, or the alert would stay for ever.
func TestEpisodesInOrder(t *testing.T) {
	s := newStore(t, 10)
	asked, answer, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(asked) })
	s.onReserve(func(context.Context, string, int64) error {
		first()
		<-answer
		return nil
	})
	a := start(t, allocator.Config{Store: s, MaxWaiting: 1, Notify: func(e allocator.Event) {
		switch e.(type) {
		case allocator.Starved:
			close(answer)
			select {
			case <-ended:
				t.Error("the end was told in the middle of the beginning")
			case <-time.After(50 * time.Millisecond): // for what must not happen
			}
		case allocator.Recovered:
			close(ended)
		}
	}})
	_, w, err := a.Request(nil, "order", 1)
	if w == nil {
		t.Fatalf("the first request: %v", err)
	}
	<-asked
	if _, _, err := a.Request(nil, "order", 1); !errors.Is(err, allocator.ErrOverloaded) {
		t.Fatalf("the second request: %v", err)
	}
	if _, err := w.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	<-ended
}

// TestEpisodesOfUnknownTags: while the store is away any caller can ask for any name. The alerts of
// tags that are known must be found among theirs.
func TestEpisodesOfUnknownTags(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r events
		a := start(t, allocator.Config{Store: s, Notify: r.notify})
		take(t, a, 10)
		s.away()
		for outage := 1; outage <= 2; outage++ { // the first one's are over in the second
			for i := range 300 {
				if _, _, err := a.Request(nil, fmt.Sprint("made-up-", i), 1); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Second)
			for range 30 { // more than there is
				a.Take(t.Context(), "order", 1)
			}
			r.wantEpisodes(t, "refill_failed", 21*outage, 21*(outage-1))
			s.back()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			r.wantEpisodes(t, "refill_failed", 21*outage, 21*outage)
			r.wantEpisodes(t, "starved", outage, outage)
			s.away()
		}
	})
}

// TestEpisodesOfUnknownTagsLater: an alert that was held back among too many is published when there is room, and
// tags of which the store went backwards take no room.
func TestEpisodesOfUnknownTagsLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tags []string
		for i := range 30 {
			tags = append(tags, fmt.Sprintf("t%02d", i))
		}
		s := newShared(t, 10, tags...)
		var r events
		a := start(t, allocator.Config{Store: unwatched{s}, Notify: r.notify})
		for _, tag := range tags[:25] {
			hear(a, tag, 1000) // so that the store goes backwards with the first range
		}
		s.away()
		for _, tag := range tags {
			if _, _, err := a.Request(nil, tag, 1); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		r.wantEpisodes(t, "refill_failed", 20, 0)
		s.onReserve(func(_ context.Context, tag string, _ int64) error {
			if tag >= "t25" {
				return errAway
			}
			return nil
		})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		failed := make(map[string]bool)
		for _, e := range told[allocator.RefillFailed](&r) {
			failed[e.Tag] = true
		}
		for _, tag := range tags[25:] {
			if !failed[tag] {
				t.Errorf("nothing was told of %s", tag)
			}
		}
	})
}

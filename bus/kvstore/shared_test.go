package kvstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Callers share checks, and none gets the result of a check that began before its call.
func TestSharedChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shared
		var state, checks atomic.Int64
		check := func(context.Context) error {
			checks.Add(1)
			seen := state.Load()
			time.Sleep(time.Second)
			if seen > 0 {
				return errors.New("lost")
			}
			return nil
		}
		var all sync.WaitGroup
		for range 100 { // one check for the first, and one for the others, which come while it is under way
			all.Go(func() {
				if err := s.share(t.Context(), check); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if n := checks.Load(); n != 2 {
			t.Errorf("%d checks for 100 callers", n)
		}

		all.Go(func() { _ = s.share(t.Context(), check) })
		synctest.Wait()
		state.Store(1) // while a check is under way that has not seen it
		if err := s.share(t.Context(), check); err == nil {
			t.Error("a check that began before the call")
		}
		all.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := s.share(ctx, check); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errUnread) {
			t.Errorf("a caller that gave up: %v", err)
		}
		time.Sleep(2 * time.Second) // its check ends
	})
}

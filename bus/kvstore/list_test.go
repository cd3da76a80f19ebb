package kvstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
)

// follow runs the watch of a store until the test ends, and returns when it has brought so many tags.
func follow(t *testing.T, s *Store, tags int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, seen := make(chan error, 1), make(chan struct{}, tags)
	go func() {
		for { // a watch that lags too far behind ends, and the generator starts another one
			if err := s.Watch(ctx, func(allocator.Tag) { trySend(seen) }); ctx.Err() != nil {
				ended <- err
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	})
	for range tags {
		<-seen
	}
}

func trySend(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// createAll creates tags that do not exist yet.
func createAll(t *testing.T, s *Store, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := s.Create(t.Context(), allocator.Tag{Name: name, MaxID: 1, Step: 10}); err != nil {
			t.Fatal(err)
		}
	}
}

// A list has each tag that was created before, by whichever generator, also while others are created.
func TestListHasWhatWasCreatedBefore(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	here, there := newStore(t, s), newStore(t, s)
	createAll(t, there, "aaa")
	follow(t, here, 1)
	var busy sync.WaitGroup
	done := make(chan struct{})
	third := newStore(t, s)
	defer busy.Wait()
	defer close(done)
	busy.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if _, err := third.Create(t.Context(), allocator.Tag{Name: fmt.Sprint("noise.", i), MaxID: 1, Step: 10}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 60 {
		name := fmt.Sprintf("tag.%02d", i)
		createAll(t, there, name)
		found, err := here.List(t.Context(), allocator.Query{Prefix: "tag.", Limit: 1000})
		if err != nil || len(found) != i+1 || found[i].Name != name {
			t.Fatalf("after the creation of %s: %d tags, %v", name, len(found), err)
		}
	}
}

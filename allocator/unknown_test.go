package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// away is a store that is never there.
type away struct{ allocator.Store }

func (away) Reserve(context.Context, string, int64, int64) (allocator.Grant, error) {
	return allocator.Grant{}, errors.New("away")
}

// Callers who ask for names of their own making while the store is away must
// not fill the memory.
func TestUnknownTagsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := allocator.New(allocator.Config{Records: away{allocatortest.NewMemory()}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); a.Run(ctx) }()
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				if _, err := a.Take(ctx, fmt.Sprint("made-up-", i), 1); !errors.Is(err, allocator.ErrUnavailable) {
					t.Errorf("Take: %v", err)
				}
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Second)
		if n := a.Tags(); n > 1000 {
			t.Errorf("%d tags that may not exist are kept", n)
		}
		cancel()
		<-done
	})
}

// Nor those that are refused for overload.
func TestOverloadLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := allocator.New(allocator.Config{Records: away{allocatortest.NewMemory()}, MaxWaiting: 1})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); a.Run(ctx) }()
		queued(t, a, "first", 1)
		for i := range 100 {
			if _, _, err := a.Request(nil, fmt.Sprint("made-up-", i), 1); !errors.Is(err, allocator.ErrOverloaded) {
				t.Fatalf("Request: %v", err)
			}
		}
		if n := a.Tags(); n != 1 {
			t.Errorf("%d tags are kept, want the one that waits", n)
		}
		cancel()
		<-done
	})
}

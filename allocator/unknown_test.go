package allocator_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

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

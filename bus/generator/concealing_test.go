package generator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// Batches wait for a processor, but only so many, and not for long. The first one is never too large.
func TestConcealing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &concealing{slots: make(chan struct{}, 1)}
		const n = concealAhead / 2
		enter := func(n int64, want error) {
			t.Helper()
			if full := c.full(n); full != (want != nil) {
				t.Errorf("full is %v", full)
			}
			if err := c.enter(n); !errors.Is(err, want) {
				t.Errorf("a batch of %d: %v, want %v", n, err, want)
			}
		}
		end := make(chan struct{})
		enter(10*concealAhead, nil)
		if c.refused.Load() {
			t.Error("it says that it has refused a batch")
		}
		first := make(chan error)
		go func() { first <- c.run(t.Context(), 10*concealAhead, func() { <-end }) }()
		enter(1, allocator.ErrOverloaded)
		if !c.refused.Load() {
			t.Error("it does not say that it has refused a batch")
		}
		close(end)
		if err := <-first; err != nil || c.ids.Load() != 0 {
			t.Fatalf("%v, %d IDs are left", err, c.ids.Load())
		}

		end = make(chan struct{})
		ended := make(chan error, 2)
		for range 2 {
			enter(n, nil)
			go func() { ended <- c.run(context.Background(), n, func() { <-end }) }()
		}
		enter(1, allocator.ErrOverloaded)
		begin := time.Now()
		if err := <-ended; !errors.Is(err, allocator.ErrOverloaded) || time.Since(begin) != concealWait {
			t.Errorf("the second batch waited %v: %v", time.Since(begin), err)
		}
		enter(n, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.run(ctx, n, func() { t.Error("it was concealed for a caller that has gone") }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(end)
		if err := <-ended; err != nil || c.ids.Load() != 0 || len(c.slots) != 0 {
			t.Errorf("%v, %d IDs are left, %d slots are taken", err, c.ids.Load(), len(c.slots))
		}
	})
}

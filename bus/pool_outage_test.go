package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// A long outage costs few attempts while IDs are left. It delays no caller before they are used up, and
// the pool recovers by itself.
func TestPoolOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Millisecond}
		p := s.pool(t, Ahead(1000, 1000))
		defer p.Close()
		wait(t, p, 1)
		time.Sleep(time.Second)

		s.set(DefaultTimeout, &Error{Code: 503, Reason: StoreUnavailable})
		s.requests()
		for range 999 {
			take(t, p, 1)
			time.Sleep(time.Minute)
		}
		if n := len(s.requests()); n < 2 || n > 10 {
			t.Errorf("%d attempts in an outage until 1000 IDs were used up", n)
		}

		// Those who wait try all the time, one at a time.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Second)
		defer cancel()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				if id, err := p.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%d, %v", id, err)
				}
			})
		}
		callers.Wait()
		if n := len(s.requests()); n != 12 {
			t.Errorf("%d attempts of %v in a minute", n, DefaultTimeout)
		}

		time.AfterFunc(time.Hour, func() { s.set(time.Millisecond, nil) })
		ctx, cancel = context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		if _, err := p.Next(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		take(t, p, 999)
	})
}

// The error of an attempt that began before a caller came may be outdated for that caller.
func TestPoolErrors(t *testing.T) {
	unknown := &Error{Code: 404, Reason: UnknownTag, Message: "no such tag"}
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Second, err: unknown}
		p := s.pool(t)
		defer p.Close()
		var callers sync.WaitGroup
		began := time.Now()
		callers.Go(func() {
			if _, err := p.Next(t.Context()); err != unknown || time.Since(began) != time.Second {
				t.Errorf("the first caller: %v after %v", err, time.Since(began))
			}
		})
		time.Sleep(time.Second / 2)
		callers.Go(func() {
			if _, err := p.Next(t.Context()); err != unknown || time.Since(began) != 2*time.Second {
				t.Errorf("the second caller: %v after %v", err, time.Since(began))
			}
		})
		time.Sleep(time.Second)
		callers.Go(func() { // the tag is created meanwhile
			if _, err := p.Next(t.Context()); err != nil || time.Since(began) != 3*time.Second {
				t.Errorf("the third caller: %v after %v", err, time.Since(began))
			}
		})
		time.Sleep(time.Second)
		s.set(time.Second, nil)
		callers.Wait()
	})
}

// The error of a caller that its context ended says why there were no IDs, and matches the context's error.
func TestPoolGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Hour}
		from := NewClient(nil, Timeout(3*time.Second)).snowflakes()
		p, err := newPool(from, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.fetch = s.fetch
		defer p.Close()
		began := time.Now()
		gives := func(what string, ctx context.Context, after time.Duration, want ...error) {
			t.Helper()
			began = time.Now()
			_, err := p.Next(ctx)
			if got := time.Since(began); got != after {
				t.Errorf("%s: after %v, want %v", what, got, after)
			}
			for _, want := range want {
				if !errors.Is(err, want) {
					t.Errorf("%s: %v; want it to match %v", what, err, want)
				}
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		gives("ended before", ended, 0, context.Canceled)
		if n := len(s.requests()); n > 0 {
			t.Errorf("%d requests for a caller that is gone", n)
		}
		gives("the client's timeout", t.Context(), 3*time.Second, context.DeadlineExceeded)
		var why error = &Error{Code: 503, Reason: StoreUnavailable}
		from.why.Store(&why)
		deadline, cancel := context.WithTimeout(t.Context(), 7*time.Second) // longer than attempts take
		defer cancel()
		gives("a deadline", deadline, 7*time.Second, context.DeadlineExceeded, StoreUnavailable)
		later, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		gives("cancelled", later, time.Second, context.Canceled, StoreUnavailable)
	})
}

// Waiting callers get ErrPoolClosed, whatever the request that they waited for returns
// when it is given up.
func TestPoolClose(t *testing.T) {
	for name, given := range map[string]error{
		"no answer":        fmt.Errorf("no answer on leaf.segment.order in time: %w", context.Canceled),
		"no generator":     fmt.Errorf("nobody: %w (%w)", nats.ErrNoResponders, context.Canceled),
		"an unknown tag":   &Error{Code: 404, Reason: UnknownTag},
		"IDs, too late":    nil,
		"of the last word": context.Canceled,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := (&poolSource{}).pool(t, Ahead(3, 3))
				p.fetch = func(ctx context.Context, n int64) ([]Range, time.Time, error) {
					<-ctx.Done()
					if given != nil {
						return nil, time.Now(), given
					}
					return []Range{{First: 1, Last: n}}, time.Now(), nil
				}
				var callers sync.WaitGroup
				var handed atomic.Int64
				for range 10 {
					callers.Go(func() {
						switch id, err := p.Next(context.Background()); {
						case err == nil:
							handed.Add(1)
						case !errors.Is(err, ErrPoolClosed):
							t.Errorf("%d, %v", id, err)
						}
					})
				}
				synctest.Wait()
				unused := p.Close()
				callers.Wait()
				if got := handed.Load() + total(unused); given == nil && got != 3 || given != nil && got != 0 {
					t.Errorf("%d handed out, and Close returned %v", handed.Load(), unused)
				}
				if id, err := p.Next(context.Background()); !errors.Is(err, ErrPoolClosed) {
					t.Errorf("after Close: %d, %v", id, err)
				}
				if again := p.Close(); again != nil {
					t.Errorf("Close again: %v", again)
				}
			})
		})
	}
}

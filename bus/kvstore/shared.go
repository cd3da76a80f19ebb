package kvstore

import (
	"context"
	"sync"
	"time"
)

// sharedTimeout bounds one check. Callers that come meanwhile wait for the next one.
const sharedTimeout = 2 * time.Second

// shared is a check that many callers need at the same time. Each gets the result of a check that began after its call, as if it
// had made the check alone. At most one check runs at a time. The zero value is ready for use.
type shared struct {
	mu   sync.Mutex
	next *check // has not begun; nil: nobody waits for one
	busy bool   // a goroutine makes the checks that are wanted
}

// check is a check that callers wait for.
type check struct {
	done chan struct{}
	err  error // once done is closed
}

// share returns the result of a check that begins after the call. do has [sharedTimeout].
func (s *shared) share(ctx context.Context, do func(context.Context) error) error {
	s.mu.Lock()
	if s.next == nil {
		s.next = &check{done: make(chan struct{})}
	}
	mine := s.next
	if !s.busy {
		s.busy = true
		go s.run(context.WithoutCancel(ctx), do)
	}
	s.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return unread(ctx.Err())
	}
}

// run makes one check after the other, until none is wanted.
func (s *shared) run(ctx context.Context, do func(context.Context) error) {
	for {
		s.mu.Lock()
		c := s.next
		s.next, s.busy = nil, c != nil
		s.mu.Unlock()
		if c == nil {
			return
		}
		attempt, cancel := context.WithTimeout(ctx, sharedTimeout)
		c.err = do(attempt)
		cancel()
		close(c.done)
	}
}

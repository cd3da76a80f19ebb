package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// slowCheck is how long a check may take before Health reports it.
const slowCheck = 5 * time.Second

// watch keeps the result of the last health check. Its methods are safe for concurrent use.
type watch struct {
	mu      sync.Mutex
	err     error
	began   time.Time // of the check that is under way; zero: none is
	restart chan struct{}
}

// begin notes that a check has begun.
func (w *watch) begin(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = now
}

// end notes the result of a check.
func (w *watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Time{}
	if errors.Is(w.err, ErrRestart) {
		return // this error stays until a restart
	}
	w.err = err
	if errors.Is(err, ErrRestart) {
		close(w.restart)
	}
}

// health returns the result of the last check.
func (w *watch) health(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if took := now.Sub(w.began); !w.began.IsZero() && took > slowCheck {
		return fmt.Errorf("the NATS server has not answered a health check for %v: its disk may hang", took.Round(time.Second))
	}
	return w.err
}

// Health returns why the server cannot keep its part of the installation's state, or nil. Its disk is full, JetStream is disabled or cannot write, a stream of Leafbus has no
// leader, or its replica on this server is not current. After a start Health returns an error
// until the replicas are current for the first time. The server is checked each second. An
// error that matches [ErrRestart] stays until a restart.
func (s *Server) Health() error { return s.watch.health(time.Now()) }

// AwaitRestart returns nil when the context is done. It returns an error that matches
// [ErrRestart] as soon as only a restart helps, and the folder takes writes again.
func (s *Server) AwaitRestart(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.watch.restart:
		return s.Health()
	}
}

// startChecks checks once, so that Health is known when Start returns, and then repeatedly
// until the context is done.
func (s *Server) startChecks(ctx context.Context) {
	var j judge
	s.watch.end(j.next(time.Now(), s.check()))
	s.checking.Go(func() {
		checks := time.NewTimer(j.pause())
		defer checks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-checks.C:
			}
			s.watch.begin(time.Now())
			found := s.check()
			if ctx.Err() != nil { // it may have found a server that is being stopped
				return
			}
			s.watch.end(j.next(time.Now(), found))
			checks.Reset(j.pause())
		}
	})
}

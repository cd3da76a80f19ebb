package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// slowLook is how long a look may take before Health reports that it does not end.
const slowLook = 5 * time.Second

// watch is what is known of the server's health. Its methods are safe for concurrent use.
type watch struct {
	mu      sync.Mutex
	err     error
	began   time.Time // of the look that is under way; zero: none is
	restart chan struct{}
}

// begin notes that a look has begun.
func (w *watch) begin(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = now
}

// end notes what a look has shown.
func (w *watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Time{}
	if errors.Is(w.err, ErrRestart) {
		return // that is the last word
	}
	w.err = err
	if errors.Is(err, ErrRestart) {
		close(w.restart)
	}
}

// health returns what the last look has shown.
func (w *watch) health(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if took := now.Sub(w.began); !w.began.IsZero() && took > slowLook {
		return fmt.Errorf("the NATS server has not answered a health check for %v: its disk may hang", took.Round(time.Second))
	}
	return w.err
}

// Health returns why the server does not keep its part of the installation's state, as far as
// the last look knows, which was a second ago: JetStream is disabled or cannot write, it has no leader, or a
// replica of Leafbus on this server is not current. nil: it does. After a start it is an error until
// the replicas are current for the first time. An error that matches [ErrRestart] will not go
// away before a restart.
func (s *Server) Health() error { return s.watch.health(time.Now()) }

// AwaitRestart returns when the context is done, or with an error that matches [ErrRestart]
// as soon as only a restart helps, and does help: the folder takes writes again.
func (s *Server) AwaitRestart(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.watch.restart:
		return s.Health()
	}
}

// startLooking looks once, so that Health is known when Start returns, and then again and
// again until stopLook is called.
func (s *Server) startLooking() {
	var j judge
	s.watch.restart = make(chan struct{})
	s.watch.end(j.next(time.Now(), s.look()))
	var ctx context.Context
	ctx, s.stopLook = context.WithCancel(context.Background())
	s.looked = make(chan struct{})
	go s.keepLooking(ctx, j)
}

// keepLooking looks at the server until the context is done. j has judged what Start
// has found.
func (s *Server) keepLooking(ctx context.Context, j judge) {
	defer close(s.looked)
	looks := time.NewTimer(j.pause())
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
		}
		s.watch.begin(time.Now())
		found := s.look()
		if ctx.Err() != nil { // it saw the server's end
			return
		}
		s.watch.end(j.next(time.Now(), found))
		looks.Reset(j.pause())
	}
}

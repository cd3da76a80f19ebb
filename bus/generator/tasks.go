package generator

import (
	"context"
	"sync"
	"time"
)

// tasks are the goroutines that callbacks start. Unlike a [sync.WaitGroup] it can be closed
// while callbacks still come, and a wait for it can end early. Its methods are safe for
// concurrent use; the zero value is ready.
type tasks struct {
	mu      sync.Mutex
	closed  bool
	running int
}

// start runs f in a goroutine. After close it returns false and does nothing.
func (t *tasks) start(f func()) bool {
	if !t.enter() {
		return false
	}
	go func() {
		defer t.leave()
		f()
	}()
	return true
}

func (t *tasks) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.running++
	}
	return !t.closed
}

func (t *tasks) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
}

// none reports whether none runs.
func (t *tasks) none() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running == 0
}

// wait waits until none runs, or the context is done.
func (t *tasks) wait(ctx context.Context) { until(ctx, t.none) }

// close lets no more start, and waits for those that run.
func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wait(context.Background())
}

// untilEvery is how often until looks.
const untilEvery = 5 * time.Millisecond

// until waits until something is done. It reports false if the context is done first.
func until(ctx context.Context, done func() bool) bool {
	for !done() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(untilEvery):
		}
	}
	return true
}

// signal wakes the goroutine that receives from c, which holds one signal.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// stopper stops what runs in the background, and waits until it has ended. The zero value
// stops nothing.
type stopper struct {
	cancel  context.CancelFunc
	running *sync.WaitGroup
}

// background runs some functions until they are stopped.
func background(fs ...func(context.Context)) stopper {
	ctx, cancel := context.WithCancel(context.Background())
	s := stopper{cancel, new(sync.WaitGroup)}
	for _, f := range fs {
		s.running.Go(func() { f(ctx) })
	}
	return s
}

func (s stopper) stop() {
	if s.cancel != nil {
		s.cancel()
		s.running.Wait()
	}
}

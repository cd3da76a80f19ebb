package generator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// gate holds requests back while the generator must check something before it may answer them.
// Its methods are safe for concurrent use; the zero value is an open gate.
type gate struct {
	isShut  atomic.Bool  // known without mu, because each request looks
	waiting atomic.Int64 // requests that are held back

	mu     sync.Mutex
	opens  chan struct{} // closed when the gate opens; nil: it is open
	opened time.Time     // when it last opened
	ended  bool          // it never shuts again
}

// shut shuts the gate, and reports whether it was open. It does nothing after end.
func (g *gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opens != nil || g.ended {
		return false
	}
	g.opens = make(chan struct{})
	g.isShut.Store(true)
	return true
}

func (g *gate) open(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opens != nil {
		g.isShut.Store(false)
		close(g.opens)
		g.opens, g.opened = nil, now
	}
}

// end opens the gate for good.
func (g *gate) end(now time.Time) {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.open(now)
}

// since returns how long ago the gate last opened.
func (g *gate) since(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return now.Sub(g.opened)
}

// hold returns a waiter that waits until the gate is open and then calls take, for at most
// maxWait in all: then its error is timedOut. It refuses a request if most requests are held back already.
func (g *gate) hold(most int64, maxWait time.Duration, timedOut error, take takeFunc) (waiter, error) {
	if g.waiting.Add(1) > most {
		g.waiting.Add(-1)
		return nil, allocator.ErrOverloaded
	}
	return takeFunc(func(ctx context.Context) ([]bus.Range, error) {
		defer g.waiting.Add(-1)
		ctx, cancel := context.WithTimeoutCause(ctx, maxWait, timedOut)
		defer cancel()
		g.mu.Lock()
		opens := g.opens
		g.mu.Unlock()
		if opens != nil {
			select {
			case <-opens:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		return take(ctx)
	}), nil
}

// takeFunc takes IDs for a request that may wait.
type takeFunc func(context.Context) ([]bus.Range, error)

// Wait implements waiter.
func (f takeFunc) Wait(ctx context.Context) ([]bus.Range, error) { return f(ctx) }

package generator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/snowflake"
)

var errIsolated = errors.New("it was cut off, and has yet to look at its worker's record")

// isolation is while the generator was cut off from NATS and has not looked at
// its worker's record since: the registry may have lost it meanwhile, say because its
// JetStream was restored, and another may have taken the worker. Its methods are
// safe for concurrent use; the zero value is ready.
type isolation struct {
	lasts   atomic.Bool   // known without mu
	life    atomic.Uint64 // the life of the connection (see reconnects) in which the record was last looked at
	waiting atomic.Int64
	givenUp atomic.Bool // it ended because the generator does

	mu    sync.Mutex
	ended chan struct{} // closed when it is over; nil: there is none
	last  time.Time     // when one ended
}

// begin reports whether there was no isolation yet.
func (i *isolation) begin() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended != nil || i.givenUp.Load() {
		return false
	}
	i.ended = make(chan struct{})
	i.lasts.Store(true)
	return true
}

// end notes that the record was looked at in this life of the connection.
func (i *isolation) end(now time.Time, life uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.life.Store(life)
	if i.ended != nil {
		i.lasts.Store(false)
		close(i.ended)
		i.ended, i.last = nil, now
	}
}

// over returns what is closed when the isolation is over; nil: there is none.
func (i *isolation) over() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ended
}

// since returns how long ago the last one ended.
func (i *isolation) since(now time.Time) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return now.Sub(i.last)
}

// reconnects is how often the connection was made again. nats.go counts up before a
// message can arrive on a new connection. Its channels and callbacks report a new
// connection only later.
func (g *Generator) reconnects() uint64 { return g.cfg.Conn.Stats().Reconnects }

// guard begins an isolation when the connection is lost, and ends it after the connection is
// made again. It waits for nothing else: nats.go holds the connection's lock while it dials, and
// while a write to the server hangs.
func (g *Generator) guard(ctx context.Context, status <-chan nats.Status) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-status:
			if s == nats.RECONNECTING {
				g.isolation.begin()
			} else {
				g.tasks.start(g.rejoin)
			}
		}
	}
}

// isolated reports whether the generator is or was cut off and has yet to look at its
// worker's record. It counts reconnects itself, because status events come too late. It may
// wait for the connection's lock.
func (g *Generator) isolated() bool {
	if g.reconnects() == g.isolation.life.Load() {
		return g.isolation.lasts.Load()
	}
	if g.isolation.begin() {
		g.tasks.start(g.rejoin)
	}
	return true
}

// rejoin ends the isolation when the worker's record has been looked at, or the
// registry does not answer.
func (g *Generator) rejoin() {
	connection := g.reconnects()
	if g.noWorker() == nil {
		g.flakes.Verify(g.life)
	}
	if g.life.Err() == nil && g.cfg.Conn.IsConnected() && g.reconnects() == connection { // otherwise there is another connection
		g.isolation.end(time.Now(), connection)
	}
}

// lookAt makes sure of the worker's record, once at a time.
func (g *Generator) lookAt() {
	if g.looking.CompareAndSwap(false, true) {
		g.tasks.start(func() {
			defer g.looking.Store(false)
			g.flakes.Verify(g.life)
		})
	}
}

// rejoining is a request for snowflakes that came before the isolation was over.
type rejoining struct {
	g *Generator
	n int64
}

// Wait implements waiter.
func (r rejoining) Wait(ctx context.Context) ([]bus.Range, error) {
	defer r.g.isolation.waiting.Add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, r.g.cfg.MaxWait, snowflake.ErrTimedOut) // of both waits together
	defer cancel()
	over := r.g.isolation.over()
	if over == nil { // just now
		return r.g.takeFlakes(ctx, r.n)
	}
	select {
	case <-over:
		if r.g.isolation.givenUp.Load() {
			return nil, snowflake.ErrClosed
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return r.g.takeFlakes(ctx, r.n)
}

// settled reports whether the others have had time to say which workers they
// hold, and whether they are of this installation.
func (g *Generator) settled(now time.Time) bool {
	if g.isolated() || g.isolation.since(now) < beatExpires {
		return false
	}
	if g.identity.Load() != nil {
		return true
	}
	for _, b := range g.presence.present(now) {
		if b.Installation != "" && b.Installation != g.cfg.Installation {
			return false // it will be refused when it joins
		}
	}
	return true
}

// claims are the workers that were lost a moment ago. Its methods are safe for
// concurrent use; the zero value is ready.
type claims struct {
	mu    sync.Mutex
	until map[int64]time.Time
}

func (c *claims) lost(now time.Time, worker int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil {
		c.until = make(map[int64]time.Time)
	}
	c.until[worker] = now.Add(claimExpires)
}

// workers returns those that are still claimed.
func (c *claims) workers(now time.Time) (workers []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.until, func(_ int64, until time.Time) bool { return now.After(until) })
	return slices.Collect(maps.Keys(c.until))
}

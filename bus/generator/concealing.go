package generator

import (
	"cmp"
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

const (
	// concealInline is how many IDs are concealed where requests are read. More would delay the requests after them.
	concealInline = 256
	// concealAhead bounds the IDs of batches that wait to be concealed, for each processor: what one conceals in a
	// quarter of a second.
	concealAhead = 500_000
	// concealWait bounds the wait of a batch. It ends so late only if the machine is busy with other work, and callers
	// give up soon after.
	concealWait = time.Second
)

// concealing bounds the work on batches of opaque tags, which takes as long as they have IDs. It is not done where
// requests are read. So these do not wait for it, and no [valve] would bound it. What it refuses is an overload, too.
type concealing struct {
	slots      chan struct{} // one for each processor
	ids        atomic.Int64  // of the batches that wait or are concealed
	overloaded func()        // counts an overload
}

func newConcealing(overloaded func()) *concealing {
	return &concealing{slots: make(chan struct{}, runtime.GOMAXPROCS(0)), overloaded: overloaded}
}

// full reports whether a batch of n IDs would be refused now. The first batch is never too large.
func (c *concealing) full(n int64) bool { return c.exceeds(c.ids.Load(), n) }

func (c *concealing) exceeds(ids, n int64) bool {
	if ids == 0 || ids+n <= concealAhead*int64(cap(c.slots)) {
		return false
	}
	c.overloaded()
	return true
}

// enter admits a batch of n IDs, of which run must follow.
func (c *concealing) enter(n int64) error {
	if c.exceeds(c.ids.Add(n)-n, n) {
		c.ids.Add(-n)
		return allocator.ErrOverloaded
	}
	return nil
}

// run calls f for an admitted batch of n IDs when a processor is free for it, or returns an error.
func (c *concealing) run(ctx context.Context, n int64, f func()) error {
	defer c.ids.Add(-n)
	ctx, cancel := context.WithTimeoutCause(ctx, concealWait, allocator.ErrOverloaded)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.slots }()
	f()
	return nil
}

// isLarge reports whether the IDs of a request are not concealed where requests are read.
func (g *Generator) isLarge(tag string, n int64) bool {
	if n <= concealInline {
		return false
	}
	return g.cfg.Keys.Known(tag) != nil
}

// concealFor is conceal for a caller in this process, which may wait.
func (g *Generator) concealFor(ctx context.Context, tag string, n int64, numbers []bus.Range) (ids []bus.Range, err error) {
	if !g.isLarge(tag, n) {
		return g.conceal(tag, numbers)
	}
	if err := g.concealing.enter(n); err != nil {
		return nil, err
	}
	late := g.concealing.run(ctx, n, func() { ids, err = g.conceal(tag, numbers) })
	return ids, cmp.Or(late, err)
}

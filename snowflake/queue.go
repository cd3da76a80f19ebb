package snowflake

import (
	"container/list"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// Range is a run of consecutive IDs.
type Range = allocator.Range

// queue holds the requests that wait. Generator.mu guards it.
type queue struct {
	list.List       // *waiter
	missing   int64 // IDs that they wait for
	capacity  int64 // the most that missing may be; never changes
}

const (
	// slowAfter is how long a request waits before it counts as slow.
	slowAfter = 100 * time.Millisecond
	// recheckAfter bounds the pause between checks of the clock while requests wait, in ms.
	recheckAfter = 100
	// nextMillisecond is the pause while the present one is used up, and how much earlier than a
	// longer unit of time a pause ends. The scheduler makes it a millisecond or more; maxLag makes
	// up for that.
	nextMillisecond = 500 * time.Microsecond
)

// waiter is a request that could not be served at once. It waits until it is served or refused, for
// at most the generator's MaxWait. IDs that were set aside for a request that gives up are lost: a
// gap.
type waiter struct {
	allocator.Later
	g *Generator

	// Guarded by the generator's lock.
	element *list.Element
	missing int64
	ranges  []Range
}

// gaveUp takes the request out of the queue.
func (w *waiter) gaveUp(why error) error {
	w.g.leaveLocked(w)
	if why == allocator.ErrTimedOut {
		return ErrTimedOut
	}
	return why
}

// queueLocked makes a request wait.
func (g *Generator) queueLocked(n int64) (*allocator.Later, error) {
	q := &g.queue
	if g.draining {
		return nil, ErrClosed
	}
	if q.missing+n > q.capacity || int64(q.Len()) >= g.cfg.MaxWaiting {
		return nil, ErrOverloaded
	}
	w, now := &waiter{g: g, missing: n}, time.Now()
	w.Begin(&g.mu, now.Add(slowAfter), now.Add(g.cfg.MaxWait), w.gaveUp)
	w.element = q.PushBack(w)
	q.missing += n
	wake(g.signals.serve)
	return &w.Later, nil
}

// finishLocked ends a wait.
func (g *Generator) finishLocked(w *waiter, err error) {
	g.leaveLocked(w)
	if err != nil {
		w.ranges = nil
	}
	w.EndLocked(w.ranges, err)
	go w.Announce() // the callback must not run under the lock
}

func (g *Generator) leaveLocked(w *waiter) {
	g.queue.Remove(w.element)
	g.queue.missing -= w.missing
}

// refuseLocked refuses all requests that wait.
func (g *Generator) refuseLocked(err error) {
	for g.queue.Len() > 0 {
		g.finishLocked(g.queue.Front().Value.(*waiter), err)
	}
}

// serveLocked gives the requests that wait the time until t. They take turns, so that one for few
// IDs does not wait for one that asks for many.
func (g *Generator) serveLocked(t int64) {
	for g.queue.missing > 0 {
		g.seq.enter(t)
		for g.queue.Len() > 0 && g.seq.next < g.seq.size {
			w := g.queue.Front().Value.(*waiter)
			n := min(w.missing, g.seq.size-g.seq.next, max(1, g.seq.size/turns))
			w.ranges = idspace.AppendRange(w.ranges, g.issueLocked(n))
			w.missing -= n
			g.queue.missing -= n
			if w.missing == 0 {
				g.finishLocked(w, nil)
			} else {
				g.queue.MoveToBack(w.element)
			}
		}
		if g.seq.ms >= t {
			g.seq.packed = g.seq.packed || g.queue.missing > 0
			return
		}
	}
}

// serve serves the requests that wait as far as it can, and returns when to try
// again. It reads the clock often enough to notice a standstill.
func (g *Generator) serve() (again time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.cfg.Clock()
	t, wait, err := g.mayIssueLocked(r)
	switch {
	case err != nil:
		g.refuseLocked(err)
	case wait > 0:
		return duration(min(wait, recheckAfter)) // the clock may be set meanwhile
	default:
		g.serveLocked(t)
	}
	if g.queue.missing == 0 {
		return readClockEvery
	}
	next := duration(t + g.seq.unit - g.timeLocked(r)) // the next unit
	return min(max(next-nextMillisecond, nextMillisecond), duration(recheckAfter))
}

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
	small, large list.List // *Waiter
	missing      int64     // IDs that they wait for
	capacity     int64     // the most that missing may be; never changes
}

func (q *queue) len() int { return q.small.Len() + q.large.Len() }

// slowAfter is how long a request waits before it counts as slow.
const slowAfter = 100 * time.Millisecond

// Waiter is a request that could not be served at once. It waits until it is served or refused, for at most the
// generator's MaxWait. IDs that were set aside for a request that gives up are lost: a gap.
type Waiter struct {
	allocator.Later
	g     *Generator
	queue *list.List

	// Guarded by the generator's lock.
	element *list.Element // nil: no longer in the queue
	missing int64
	ranges  []Range
}

// gaveUp takes the request out of the queue.
func (w *Waiter) gaveUp(why error) error {
	w.g.leaveLocked(w)
	if why == allocator.ErrTimedOut {
		return ErrTimedOut
	}
	return why
}

// queueLocked makes a request wait.
func (g *Generator) queueLocked(n int64, large bool) (*Waiter, error) {
	q := &g.queue
	if g.draining {
		return nil, ErrClosed
	}
	if q.missing+n > q.capacity || int64(q.len()) >= g.cfg.MaxWaiting {
		return nil, ErrOverloaded
	}
	w, now := &Waiter{g: g, queue: &q.small, missing: n}, time.Now()
	w.Begin(&g.mu, now.Add(slowAfter), now.Add(g.cfg.MaxWait), w.gaveUp)
	if large {
		w.queue = &q.large
	}
	w.element = w.queue.PushBack(w)
	q.missing += n
	wake(g.signals.serve)
	return w, nil
}

// finishLocked ends a wait.
func (g *Generator) finishLocked(w *Waiter, err error) {
	g.leaveLocked(w)
	if err != nil {
		w.ranges = nil
	}
	w.EndLocked(w.ranges, err)
	go w.Announce() // the callback must not run under the lock
}

func (g *Generator) leaveLocked(w *Waiter) {
	w.queue.Remove(w.element)
	w.element = nil
	g.queue.missing -= w.missing
}

// refuseLocked refuses all requests that wait.
func (g *Generator) refuseLocked(err error) {
	for _, queue := range []*list.List{&g.queue.small, &g.queue.large} {
		for queue.Len() > 0 {
			g.finishLocked(queue.Front().Value.(*Waiter), err)
		}
	}
}

// serveLocked gives the requests that wait the time until t. Large and small
// ones have their part each; the large ones take turns.
func (g *Generator) serveLocked(t int64) {
	q := &g.queue
	for q.missing > 0 {
		g.seq.enter(t)
		if q.large.Len() > 0 {
			g.fillLocked(&q.small, g.seq.size/share-g.seq.next)
		}
		for q.large.Len() > 0 {
			turn := min(g.seq.room(t, true), max(1, g.seq.size/8))
			if turn == 0 {
				break
			}
			first := q.large.Front().Value.(*Waiter)
			g.fillLocked(&q.large, turn)
			if first.element != nil {
				q.large.MoveToBack(first.element)
			}
		}
		g.fillLocked(&q.small, g.seq.room(t, false))
		if g.seq.ms >= t {
			g.seq.packed = g.seq.packed || q.missing > 0
			return
		}
	}
}

// fillLocked issues up to room IDs to the first of a queue, and to those after it if room is left.
func (g *Generator) fillLocked(queue *list.List, room int64) {
	for queue.Len() > 0 && room > 0 {
		w := queue.Front().Value.(*Waiter)
		n := min(w.missing, room)
		w.ranges = idspace.AppendRange(w.ranges, g.issueLocked(n))
		w.missing -= n
		g.queue.missing -= n
		room -= n
		if w.missing == 0 {
			g.finishLocked(w, nil)
		}
	}
}

// serve serves the requests that wait as far as it can, and returns when to try
// again; 0: when the goroutine is woken.
func (g *Generator) serve() (again time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queue.missing == 0 {
		return 0
	}
	r := g.cfg.Clock()
	t, wait, err := g.mayIssueLocked(r)
	switch {
	case err != nil:
		g.refuseLocked(err)
		return 0
	case wait > 0:
		return min(wait, recheckAfter) // the clock may be set meanwhile
	}
	g.serveLocked(t)
	if g.queue.missing == 0 {
		return 0
	}
	next := millis(t + g.seq.unit - g.timeLocked(r)) // the next unit
	return min(max(next-nextMillisecond, nextMillisecond), recheckAfter)
}

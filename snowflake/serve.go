package snowflake

import (
	"container/list"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// queueLocked makes a request wait.
func (g *Generator) queueLocked(n int64, large bool) (*Waiter, error) {
	if g.draining {
		return nil, ErrClosed
	}
	if g.missing+n > g.capacity || int64(g.small.Len()+g.large.Len()) >= g.cfg.MaxWaiting {
		return nil, ErrOverloaded
	}
	w := &Waiter{g: g, queue: &g.small, deadline: time.Now().Add(g.cfg.MaxWait), done: make(chan struct{}), missing: n}
	if large {
		w.queue = &g.large
	}
	w.place = w.queue.PushBack(w)
	g.missing += n
	signal(g.wake)
	return w, nil
}

// settleLocked ends a wait.
func (g *Generator) settleLocked(w *Waiter, err error) {
	w.queue.Remove(w.place)
	w.place = nil
	g.missing -= w.missing
	if err != nil {
		w.ranges, w.err = nil, err
	}
	close(w.done)
}

// serveLocked gives the requests that wait what the time until t has. Large
// and small ones have their part each; the large ones take turns.
func (g *Generator) serveLocked(t int64) {
	for g.missing > 0 {
		g.seq.enter(t)
		if g.large.Len() > 0 {
			g.fillLocked(&g.small, g.seq.size/share-g.seq.next)
		}
		for g.large.Len() > 0 {
			turn := min(g.seq.room(t, true), max(1, g.seq.size/8))
			if turn == 0 {
				break
			}
			first := g.large.Front().Value.(*Waiter)
			g.fillLocked(&g.large, turn)
			if first.place != nil {
				g.large.MoveToBack(first.place)
			}
		}
		g.fillLocked(&g.small, g.seq.room(t, false))
		if g.seq.ms >= t {
			g.seq.packed = g.seq.packed || g.missing > 0
			return
		}
	}
}

// fillLocked issues up to room IDs to the first of a queue, and those after it
// if room is left.
func (g *Generator) fillLocked(queue *list.List, room int64) {
	for queue.Len() > 0 && room > 0 {
		w := queue.Front().Value.(*Waiter)
		n := min(w.missing, room)
		w.ranges = allocator.AppendRange(w.ranges, g.issueLocked(n))
		w.missing -= n
		g.missing -= n
		room -= n
		if w.missing == 0 {
			g.settleLocked(w, nil)
		}
	}
}

// serve gives what it can to the requests that wait, and returns when to look
// again; 0 is when there is something new.
func (g *Generator) serve() (again time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.missing == 0 {
		return 0
	}
	t, wait, err := g.lookLocked(g.cfg.Clock())
	switch {
	case err != nil:
		g.refuseLocked(err)
		return 0
	case wait > 0:
		return min(wait, lookAgain) // the clock may be set meanwhile
	}
	g.serveLocked(t)
	if g.missing == 0 {
		return 0
	}
	return nextMillisecond
}

// refuseLocked refuses all requests that wait.
func (g *Generator) refuseLocked(err error) {
	for _, queue := range []*list.List{&g.small, &g.large} {
		for queue.Len() > 0 {
			g.settleLocked(queue.Front().Value.(*Waiter), err)
		}
	}
}

package allocator

import (
	"context"
	"time"
)

// Waiter is a request for which memory had not enough IDs. It waits in the
// queue of its tag until it is satisfied or refused.
type Waiter struct {
	allocator *Allocator
	buffer    *buffer
	n         int64
	deadline  time.Time
	done      chan struct{} // closed when ranges and err are final

	// Guarded by the buffer's lock until done is closed.
	queued  bool // in the queue, between before and after
	before  *Waiter
	after   *Waiter
	missing int64
	ranges  []Range
	err     error
}

// Wait returns the IDs, all that were asked for, or an error. Call it once. When the
// context ends, or the allocator's MaxWait is over, the IDs that were put aside for the
// request are lost: a gap.
func (w *Waiter) Wait(ctx context.Context) ([]Range, error) {
	timer := time.NewTimer(time.Until(w.deadline))
	defer timer.Stop()
	var err error
	select {
	case <-w.done:
		return w.ranges, w.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = ErrTimedOut
	}

	b := w.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.queued { // else it was settled just now
		if err == ErrTimedOut {
			err = w.allocator.starvedLocked(b, time.Now(), err, b.waiters.n)
		}
		b.settleLocked(w, err)
	}
	return w.ranges, w.err
}

// queue holds the requests that wait for a tag, first come first. The zero value is
// empty. A [container/list.List] would cost each tag twice as much, and each waiter
// an allocation.
type queue struct {
	first, last *Waiter
	n           int
}

// push adds a waiter at the end.
func (q *queue) push(w *Waiter) {
	w.queued, w.before = true, q.last
	if q.last == nil {
		q.first = w
	} else {
		q.last.after = w
	}
	q.last = w
	q.n++
}

// remove takes a waiter out, at any position.
func (q *queue) remove(w *Waiter) {
	if w.before == nil {
		q.first = w.after
	} else {
		w.before.after = w.after
	}
	if w.after == nil {
		q.last = w.before
	} else {
		w.after.before = w.before
	}
	w.queued, w.before, w.after = false, nil, nil
	q.n--
}

package allocator

import (
	"context"
	"time"
)

const (
	// slowAfter is how long a request waits for a refill before it counts as slow. A healthy store needs less.
	slowAfter = 100 * time.Millisecond
	// slowStrict is the same for a strict tag. Each of its requests waits for a claim, so this is the time of a claim
	// that fails, and slowAfter.
	slowStrict = firstClaim + slowAfter
	// slowAtOnce is the same where the last refill has failed.
	slowAtOnce = time.Millisecond
)

// slowAfterLocked is how long a request waits now before it counts as slow.
func (b *buffer) slowAfterLocked() time.Duration {
	switch {
	case b.failure != nil:
		return slowAtOnce
	case b.strict != nil:
		return slowStrict
	default:
		return slowAfter
	}
}

// Waiter is a request for which memory had not enough IDs. It waits in the
// queue of its tag until it is satisfied or refused.
type Waiter struct {
	allocator *Allocator
	buffer    *buffer
	n         int64
	number    uint64    // in the queue: later ones have higher numbers
	fromPeer  bool      // another generator has passed it on
	slowAt    time.Time // when another generator may help
	deadline  time.Time
	done      chan struct{} // closed when ranges and err are final

	// Guarded by the buffer's lock until done is closed.
	queued  bool // in the queue, between before and after
	before  *Waiter
	after   *Waiter
	missing int64
	ranges  []Range
	err     error
	then    func([]Range, error) // instead of a goroutine in Wait; nil: there is one, or none yet
	slow    func()               // is called once at slowAt; nil: it was
	timer   *time.Timer          // is due at slowAt, then at the deadline
}

// Wait returns the IDs, all that were asked for, or an error. Call it once, or else Then. When the
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
			err = b.dryLocked(time.Now(), err, b.waiters.n)
		}
		b.settleLocked(w, err)
	}
	return w.ranges, w.err
}

// SlowAt is when the request counts as slow: another generator may have IDs, and this one may have to wait until the
// store is back. If the store is known to fail, that is at once.
func (w *Waiter) SlowAt() time.Time { return w.slowAt }

// Then calls f with what Wait would return. If the request still waits at SlowAt, and the deadline is later, it calls
// slow first. f must not block: the requests that the same claim serves are answered one after the other. Unlike Wait
// it needs no goroutine for each request that waits.
func (w *Waiter) Then(f func([]Range, error), slow func()) {
	w.buffer.mu.Lock()
	if w.queued {
		w.then, w.slow = f, slow
		due := w.slowAt
		if !due.Before(w.deadline) {
			w.slow, due = nil, w.deadline
		}
		w.timer = time.AfterFunc(time.Until(due), w.due)
	}
	w.buffer.mu.Unlock()
	if w.then == nil { // settled already
		f(w.ranges, w.err)
	}
}

// due calls slow, and ends the wait at the deadline.
func (w *Waiter) due() {
	b := w.buffer
	b.mu.Lock()
	slow := w.slow
	w.slow = nil
	switch {
	case !w.queued: // it was settled just now
	case slow != nil:
		w.timer.Reset(time.Until(w.deadline))
	default:
		b.settleLocked(w, b.dryLocked(time.Now(), ErrTimedOut, b.waiters.n))
	}
	queued := w.queued
	b.mu.Unlock()
	if queued && slow != nil {
		slow()
	}
}

// Withdraw ends the wait of a request that gets its IDs from another generator. It reports whether the request still
// waited. If not, Then's f was called, or Wait has returned.
func (w *Waiter) Withdraw() bool {
	b := w.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	if !w.queued {
		return false
	}
	b.endLocked(w, nil)
	w.ranges = nil // what was put aside for it is lost: a gap
	if w.allocator.Order(b.tag) != Strict {
		b.chargeLocked(-w.n) // as in [Allocator.Borrowed]
	}
	return true
}

// announce lets the caller go on after the wait has ended.
func (w *Waiter) announce() {
	if w.then == nil {
		close(w.done)
	} else {
		w.then(w.ranges, w.err)
	}
}

// queue holds the requests that wait for a tag, first come first. The zero value is
// empty. A [container/list.List] would cost each tag twice as much, and each waiter
// an allocation.
type queue struct {
	first, last *Waiter
	n           int
	pushed      uint64 // waiters so far
	missing     int64  // IDs that they still need
}

// push adds a waiter at the end.
func (q *queue) push(w *Waiter) {
	w.queued, w.before, w.number = true, q.last, q.pushed
	q.pushed++
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

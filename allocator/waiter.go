package allocator

import "time"

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

// Waiter is a request for which memory had not enough IDs. It waits in the queue of its tag until it is satisfied or
// refused, for at most the allocator's MaxWait. If the store is known to fail, it is slow soon.
type Waiter struct {
	Later
	allocator *Allocator
	buffer    *buffer
	n         int64
	number    uint64 // in the queue: later ones have higher numbers
	fromPeer  bool   // another generator has passed it on

	// In the queue, guarded by the buffer's lock.
	before *Waiter
	after  *Waiter
}

// gaveUp takes the request out of the queue. IDs that were saved for it go to those behind it.
func (w *Waiter) gaveUp(why error) error {
	b := w.buffer
	if why == ErrTimedOut {
		why = b.dryLocked(time.Now(), why, b.waiters.n)
	}
	b.leaveLocked(w, why != nil || w.allocator.Order(b.tag) != Strict) // as in [Allocator.Borrowed]
	b.serveLocked()
	w.allocator.recountLocked(b)
	return why
}

// queue holds the requests that wait for a tag, first come first. The zero value is
// empty. A [container/list.List] would cost each tag twice as much, and each waiter
// an allocation.
type queue struct {
	first, last *Waiter
	n           int
	pushed      uint64 // waiters so far
	wanted      int64  // IDs that those in the queue need
}

// push adds a waiter at the end.
func (q *queue) push(w *Waiter) {
	w.before, w.number = q.last, q.pushed
	q.pushed++
	if q.last == nil {
		q.first = w
	} else {
		q.last.after = w
	}
	q.last = w
	q.n++
	q.wanted += w.n
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
	w.before, w.after = nil, nil
	q.n--
	q.wanted -= w.n
}

package allocator

import (
	"container/list"
	"iter"
	"time"
)

const (
	// slowAfter is how long a request waits for a refill before it counts as slow. A healthy store
	// needs less.
	slowAfter = 100 * time.Millisecond
	// slowStrict is the same for a strict tag. Each of its requests waits for a claim, so this is
	// the time of a claim that fails, and slowAfter.
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

// waiter is a request for which memory had not enough IDs. It waits in the queue of its tag until
// it is satisfied or refused, for at most the allocator's MaxWait. If the store is known to fail,
// it is slow soon.
type waiter struct {
	Later
	allocator *Allocator
	buffer    *buffer
	n         int64
	number    uint64 // in the queue: later ones have higher numbers
	place     *list.Element
	fromPeer  bool // another generator has passed it on
}

// gaveUp takes the request out of the queue. IDs that were saved for it go to those behind it.
func (w *waiter) gaveUp(why error) error {
	b := w.buffer
	if why == ErrTimedOut {
		why = b.dryLocked(time.Now(), why, b.waiters.Len())
	}
	b.leaveLocked(w, why != nil || w.allocator.Order(b.tag) != Strict) // as in [Allocator.Borrowed]
	b.serveLocked()
	w.allocator.recountLocked(b)
	return why
}

// queue holds the requests that wait for a tag, first come first. The zero value is empty.
type queue struct {
	list.List        // of *waiter
	pushed    uint64 // waiters so far
}

// push adds a waiter at the end.
func (q *queue) push(w *waiter) {
	w.number, w.place = q.pushed, q.PushBack(w)
	q.pushed++
}

// first is the waiter that came first; nil: there is none.
func (q *queue) first() *waiter {
	if e := q.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// all yields the waiters in their order. Each may leave the queue meanwhile.
func (q *queue) all() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for e := q.Front(); e != nil; {
			w := e.Value.(*waiter)
			if e = e.Next(); !yield(w) {
				return
			}
		}
	}
}

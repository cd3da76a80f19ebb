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

// Waiter is a request for which memory had not enough IDs. It waits in the queue of its tag until it is satisfied or
// refused. Its end is always a call of the function of [Waiter.Then].
type Waiter struct {
	allocator *Allocator
	buffer    *buffer
	n         int64
	number    uint64    // in the queue: later ones have higher numbers
	fromPeer  bool      // another generator has passed it on
	slowAt    time.Time // when another generator may help
	deadline  time.Time

	// Guarded by the buffer's lock while the request is in the queue; then constant.
	queued bool // in the queue, between before and after
	before *Waiter
	after  *Waiter
	ranges []Range
	err    error
	then   func([]Range, error) // gets the end; nil: nobody asked for it yet
	slow   func()               // is called once at slowAt; nil: it was
	timer  *time.Timer          // is due at slowAt, then at the deadline
}

// Then calls f once with the IDs, all that were asked for, or with an error. If the request still waits at SlowAt, and
// the deadline is later, it calls slow first, unless that is nil. f must not block: the requests that one claim serves
// are answered one after the other. Call Then once, or else Wait.
func (w *Waiter) Then(f func([]Range, error), slow func()) {
	w.buffer.mu.Lock()
	if w.queued {
		w.then = f
		due := w.deadline
		if slow != nil && w.slowAt.Before(due) {
			w.slow, due = slow, w.slowAt
		}
		w.timer = time.AfterFunc(time.Until(due), w.due)
	}
	w.buffer.mu.Unlock()
	if w.then == nil { // settled already
		f(w.ranges, w.err)
	}
}

// Wait returns the IDs, all that were asked for, or an error: at the latest when the allocator's MaxWait is over, or
// when the context ends.
func (w *Waiter) Wait(ctx context.Context) ([]Range, error) {
	done := make(chan struct{})
	w.Then(func([]Range, error) { close(done) }, nil)
	select {
	case <-done:
	case <-ctx.Done():
		w.end(func() error { return context.Cause(ctx) })
		<-done
	}
	return w.ranges, w.err
}

// SlowAt is when the request counts as slow: another generator may have IDs, and this one may have to wait until the
// store is back. If the store is known to fail, that is at once.
func (w *Waiter) SlowAt() time.Time { return w.slowAt }

// due calls slow, and ends the wait at the deadline.
func (w *Waiter) due() {
	b := w.buffer
	b.mu.Lock()
	slow := w.slow
	w.slow = nil
	if slow != nil && w.queued {
		w.timer.Reset(time.Until(w.deadline))
	}
	queued := w.queued
	b.mu.Unlock()
	switch {
	case slow == nil:
		w.end(func() error { return b.dryLocked(time.Now(), ErrTimedOut, b.waiters.n) })
	case queued:
		slow()
	}
}

// Withdraw ends the wait of a request that gets its IDs from another generator. It reports whether the request still
// waited. If not, Then's f was called, or is about to be.
func (w *Waiter) Withdraw() bool {
	return w.end(nil)
}

// end ends the wait with an error, or without an answer if there is no function that makes one. It reports whether the
// request still waited. IDs that were saved for it go to those behind it.
func (w *Waiter) end(whyLocked func() error) bool {
	b := w.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !w.queued:
		return false
	case whyLocked != nil:
		b.settleLocked(w, whyLocked())
	default:
		b.endLocked(w, nil)
		if w.allocator.Order(b.tag) != Strict {
			b.chargeLocked(-w.n) // as in [Allocator.Borrowed]
		}
	}
	b.serveLocked()
	w.allocator.recountLocked(b)
	return true
}

// announce lets the caller go on after the wait has ended.
func (w *Waiter) announce() {
	if w.then != nil {
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
	wanted      int64  // IDs that those in the queue need
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
	w.queued, w.before, w.after = false, nil, nil
	q.n--
	q.wanted -= w.n
}

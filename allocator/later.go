package allocator

import (
	"context"
	"sync"
	"time"
)

// Later is a request whose answer comes later: the one way to wait for IDs, of a segment or of
// snowflakes.
//
//	the owner of a queue    Begin → the queue → EndLocked → Announce, without the lock
//	who made the request    Then, or else Wait; and Withdraw or Cancel
//
// The owner's lock guards what is not constant, until the request has ended.
type Later struct {
	lock     sync.Locker
	gaveUp   func(error) error // see [Later.Begin]
	slowAt   time.Time
	deadline time.Time

	ended  bool
	ranges []Range
	err    error
	then   func([]Range, error) // gets the end; nil: nobody asked for it yet
	slow   func()               // is called once at slowAt; nil: it was
	timer  *time.Timer          // is due at slowAt, then at the deadline
}

// Begin makes the zero Later wait: until the deadline at most, and from slowAt on it counts as
// slow. gaveUp is called with the lock when the request ends by itself, with the reason, which is
// nil if it is withdrawn. It takes the request out of the queue and returns the error for the
// caller.
func (l *Later) Begin(lock sync.Locker, slowAt, deadline time.Time, gaveUp func(error) error) {
	l.lock, l.slowAt, l.deadline, l.gaveUp = lock, slowAt, deadline, gaveUp
}

// Then calls f once with the IDs, all that were asked for, or with an error. If the request still
// waits when it counts as slow, because another generator may help, it calls slow first, unless
// that is nil. f must not block: the requests that one claim serves are answered one after the
// other. Call Then once, or else Wait.
func (l *Later) Then(f func([]Range, error), slow func()) {
	l.lock.Lock()
	ended := l.ended
	if !ended {
		l.then = f
		due := l.deadline
		if slow != nil && l.slowAt.Before(due) {
			l.slow, due = slow, l.slowAt
		}
		l.timer = time.AfterFunc(time.Until(due), l.due)
	}
	l.lock.Unlock()
	if ended {
		f(l.ranges, l.err)
	}
}

// Wait returns the IDs, all that were asked for, or an error: ErrTimedOut or another one of the
// owner at the deadline, or that of the context.
func (l *Later) Wait(ctx context.Context) ([]Range, error) {
	done := make(chan struct{})
	l.Then(func([]Range, error) { close(done) }, nil)
	select {
	case <-done:
	case <-ctx.Done():
		l.Cancel(context.Cause(ctx))
		<-done
	}
	return l.ranges, l.err
}

// Withdraw ends the wait of a request that gets its IDs from another generator. It reports whether
// the request still waited. If not, Then's f was called, or is about to be.
func (l *Later) Withdraw() bool { return l.Cancel(nil) }

// due calls slow, and ends the wait at the deadline.
func (l *Later) due() {
	l.lock.Lock()
	slow, ended := l.slow, l.ended
	l.slow = nil
	if slow != nil && !ended {
		l.timer.Reset(time.Until(l.deadline))
	}
	l.lock.Unlock()
	switch {
	case slow == nil:
		l.Cancel(ErrTimedOut)
	case !ended:
		slow()
	}
}

// Cancel ends the wait for this reason; nil: it is withdrawn. It reports whether the request still
// waited.
func (l *Later) Cancel(why error) bool {
	l.lock.Lock()
	waited := !l.ended
	if waited {
		l.EndLocked(nil, l.gaveUp(why))
	}
	l.lock.Unlock()
	if waited && why != nil {
		l.Announce()
	}
	return waited
}

// EndLocked ends the wait, with the IDs or an error. Announce must follow.
func (l *Later) EndLocked(ranges []Range, err error) {
	l.ended, l.ranges, l.err = true, ranges, err
	if l.timer != nil {
		l.timer.Stop()
	}
}

// Announce lets the caller go on after the end. Call it without the lock.
func (l *Later) Announce() {
	if l.then != nil {
		l.then(l.ranges, l.err)
	}
}

// Package disk is for the files of a generator's data folder. It replaces a file so that
// a power failure leaves the old or the new, and bounds the wait for a disk that hangs.
package disk

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrHangs is the error of an operation that the disk did not finish in time. The
// operation may still happen, at any later moment.
var ErrHangs = errors.New("the disk hangs")

// Runner runs disk operations, one at a time and each in its own goroutine, so that no
// caller waits forever for a disk that hangs. Nothing can end such an operation: it
// keeps its goroutine, and a thread of the system, until the kernel returns. Each Runner
// has at most one, because it begins nothing while an operation runs.
//
// Its methods are safe for concurrent use.
type Runner struct {
	wait  time.Duration
	turn  chan struct{}             // holds one while an operation runs
	since atomic.Pointer[time.Time] // when the operation that runs began; nil: none runs
}

// NewRunner returns a Runner that waits this long for an operation.
func NewRunner(wait time.Duration) *Runner {
	return &Runner{wait: wait, turn: make(chan struct{}, 1)}
}

// Run runs the operation after those before it, and returns its error. After the
// Runner's wait it returns [ErrHangs]: the operation may still run, or may not have begun.
// While an operation takes longer than that, Run returns ErrHangs at once and begins nothing.
func (r *Runner) Run(operation func() error) error {
	if since := r.since.Load(); since != nil && time.Since(*since) >= r.wait {
		return hangs(r.wait)
	}
	return r.RunWithin(r.wait, operation)
}

// RunWithin is Run with a wait of its own. It waits also for an operation that hangs already.
func (r *Runner) RunWithin(wait time.Duration, operation func() error) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r.turn <- struct{}{}:
	case <-timer.C:
		return hangs(wait)
	}
	now := time.Now()
	r.since.Store(&now)
	ended := make(chan error, 1)
	go func() {
		err := operation()
		r.since.Store(nil)
		<-r.turn
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return hangs(wait)
	}
}

func hangs(wait time.Duration) error { return fmt.Errorf("%w: no answer within %v", ErrHangs, wait) }

package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A stop that hangs, as on a disk that does not answer, ends the process. One that ends in time does not.
func TestStopThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var over atomic.Int32
		endAnyway(ctx, time.Minute, func() { over.Add(1) })
		ended := endAnyway(ctx, time.Minute, func() { t.Error("the process ends although its stop is over") })
		time.Sleep(time.Hour) // while it runs
		stop()
		ended()
		time.Sleep(time.Minute - time.Second)
		before := over.Load()
		time.Sleep(2 * time.Second)
		if before != 0 || over.Load() != 1 {
			t.Errorf("the process ends %d times before the time is up, and %d times in all", before, over.Load())
		}
	})
}

// A generator that ends by itself has as much time for its stop as after a signal: its context ends
// too, with the cause.
func TestTogetherEndsItsContext(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	failure := errors.New("only a restart helps")
	err := together(ctx, stop, func(context.Context) error { return failure }, func(context.Context) error {
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, failure) || !errors.Is(context.Cause(ctx), failure) {
		t.Errorf("it ended with %v, and its context with %v", err, context.Cause(ctx))
	}
}

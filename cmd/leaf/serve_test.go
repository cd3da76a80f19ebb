package main

import (
	"context"
	"errors"
	"testing"
)

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

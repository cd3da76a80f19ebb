package main

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// The bounds themselves are allowed.
func TestServeAccepts(t *testing.T) {
	for _, args := range []string{
		"--events-max-bytes 1048576 --events-max-age 1h --max-batch 1 --max-waiting 1 --max-step 1 --max-wait 1ms --outlast 1s " +
			"--worker-reserve 1s --worker-grace 1s --max-clock-skew 10ms --max-clock-back 1ms --max-clock-wait 1ms --tag-refresh 100ms",
		"--events-max-bytes 1125899906842624 --events-max-age 876000h --outlast 168h --worker-reserve 8760h --worker-grace 8760h " +
			"--max-clock-skew 1h --max-clock-back 1s --max-clock-wait 1m --tag-refresh 24h --worker-bits 21 --drain-timeout 0s",
	} {
		var f serveFlags
		err := f.command().ParseFlags(strings.Fields(args))
		if err := errors.Join(err, f.check()); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
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

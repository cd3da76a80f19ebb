// Package allocatortest has what tests of the allocator need: the conformance suites that every
// [allocator.Records] and every [allocator.Numbers] must pass ([RunRecords], [RunNumbers]), records
// and numbers in memory that pass them too, calls that fail at random, and a checker for IDs that
// repeat.
package allocatortest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	// timeout bounds every wait of the suites. It is no measure of speed.
	timeout = 30 * time.Second
	// poll is the pause between two looks at something that should become true.
	poll = time.Millisecond
	// soon is how long a method may take after its context is done. A call that hangs takes longer.
	soon = 5 * time.Second
)

func within(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	tb.Cleanup(cancel)
	return ctx
}

// sleep waits for d. It reports false when the context is done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Seed returns the seed of a random test, printed when it fails and taken from
// LEAF_TEST_SEED when that is set.
func Seed(tb testing.TB) *rand.Rand {
	seed := rand.Uint64()
	if s := os.Getenv("LEAF_TEST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			tb.Fatalf("LEAF_TEST_SEED: %v", err)
		}
		seed = n
	}
	tb.Logf("replay with LEAF_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

func wantError(tb testing.TB, what string, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func wantUnique(tb testing.TB, c *Checker) {
	tb.Helper()
	if _, err := c.Check(); err != nil {
		tb.Errorf("%v", err)
	}
}

// Package allocatortest has what tests of the allocator need: the conformance suites that every
// [allocator.Store] and every [allocator.Ledger] must pass ([Run], [RunLedger]), a store and a ledger in
// memory that pass them too, faults, and a checker for IDs that repeat.
package allocatortest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// Backend is the store under test. Open is called from the test's goroutine.
type Backend struct {
	// Open returns a new handle on the state of the test tb, as another process
	// would have it. The state of a new test is empty.
	Open func(tb testing.TB) allocator.Store
	// Save returns a function that sets the state of the test tb back to what
	// it is now, as an operator with a backup would.
	Save func(tb testing.TB) (restore func())
	// Gaps says that ranges may be lost although nothing failed, as with a ledger.
	Gaps bool
	// Strict says that the store keeps strict tags.
	Strict bool
	// NoRules says that the store keeps no rules: a ledger beside it does.
	NoRules bool
}

// Case is one test of the suite.
type Case struct {
	Name string
	Run  func(tb testing.TB, b Backend)
}

// Run runs the suite. Each case gets its backend from a call of open.
func Run(t *testing.T, open func(tb testing.TB) Backend) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open(t)) })
	}
}

// Cases returns the suite.
func Cases() []Case {
	return append([]Case{
		{"FirstRange", firstRange},
		{"UnknownTag", unknownTag},
		{"TagsAreApart", tagsAreApart},
		{"ManyHandles", manyHandles},
		{"LostAnswers", lostAnswers},
		{"Restart", restart},
		{"Backwards", backwards},
		{"Raised", raised},
		{"CreateTwice", createTwice},
		{"DeleteAndCreate", deleteAndCreate},
		{"MaxIDMoved", maxIDMoved},
		{"MaxIDBackwards", maxIDBackwards},
		{"Floors", floors},
		{"StepChanged", stepChanged},
		{"Exhausted", exhausted},
		{"Pages", pages},
		{"Search", search},
		{"Watch", watch},
		{"ContextDone", contextDone},
	}, append(strictCases(), ruleCases()...)...)
}

// timeout bounds every wait of the suite. It is no measure of speed.
const timeout = 30 * time.Second

func within(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	tb.Cleanup(cancel)
	return ctx
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

func create(tb testing.TB, s allocator.Store, tag string, maxID, step int64) allocator.Tag {
	tb.Helper()
	t, err := s.Create(within(tb), allocator.Tag{Name: tag, MaxID: maxID, Step: step})
	if err != nil {
		tb.Fatalf("Create(%s): %v", tag, err)
	}
	return t
}

func reserve(tb testing.TB, s allocator.Store, tag string, n int64) allocator.Grant {
	tb.Helper()
	g, err := insist(within(tb), s, tag, n)
	if err != nil {
		tb.Fatalf("Reserve(%s, %d): %v", tag, n, err)
	}
	return g
}

// insist reserves, as often as others are ahead or a store's own bound for a read ends, as refills do.
func insist(ctx context.Context, s allocator.Store, tag string, n int64) (allocator.Grant, error) {
	for {
		g, err := s.Reserve(ctx, tag, n, 1)
		if ctx.Err() != nil || !errors.Is(err, allocator.ErrConflict) && !errors.Is(err, context.DeadlineExceeded) {
			return g, err
		}
	}
}

// running returns an allocator on s that runs until the test ends.
func running(tb testing.TB, cfg allocator.Config) *allocator.Allocator {
	a := allocator.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-done })
	return a
}

// takeOne takes one ID of the tag order.
func takeOne(tb testing.TB, a *allocator.Allocator, c *Checker) {
	tb.Helper()
	ranges, err := a.Take(within(tb), "order", 1)
	if err != nil {
		tb.Fatalf("Take: %v", err)
	}
	c.Add(ranges...)
}

func wantUnique(tb testing.TB, c *Checker) {
	tb.Helper()
	if _, err := c.Check(); err != nil {
		tb.Errorf("%v", err)
	}
}

func wantError(tb testing.TB, what string, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: error %v, want %v", what, err, want)
	}
}

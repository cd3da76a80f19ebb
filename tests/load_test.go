package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// load is a number of callers that take IDs until they are stopped, and the
// proof that none of the IDs repeats.
type load struct {
	t   *testing.T
	cfg loadConfig

	checker allocatortest.Checker
	taken   audit.Taken // of a tag
	flakes  audit.Runs
	ids     atomic.Int64
	replies atomic.Int64
	highest atomic.Int64
	floor   atomic.Int64 // no ID below it may come for a request sent from now on
	stale   atomic.Int64 // an ID that came nevertheless; 0: none
	gaveUp  atomic.Int64 // calls that ended with a caller's patience
	longest atomic.Int64 // the longest time without an answer for one caller, in nanoseconds

	mu      sync.Mutex
	refusal map[bus.Reason]int
	failure error // the first that was not expected

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

type loadConfig struct {
	tag      string // empty: snowflakes
	callers  int    // on each connection
	maxBatch int64
	total    int64 // stop after so many IDs; 0: go on until stopped
	// patience bounds each call of Take. A caller whose patience ends drops the
	// call and goes on if it may give up, else the test fails.
	patience  time.Duration
	mayGiveUp bool
	// expected are refusals after which the caller goes on.
	expected []bus.Reason
	// each is called for every range that came, by many callers at once.
	each func(bus.Range)
	// options are those of the clients.
	options []bus.Option
}

// anyRefusal are the refusals that a caller could meet while the database is wrong or away.
var anyRefusal = []bus.Reason{
	bus.StoreRegressed, bus.StoreUnavailable, bus.TimedOut, bus.UnknownTag, bus.Overloaded, bus.Draining, bus.Internal,
}

// startLoad starts callers on one connection for each of the URLs.
func startLoad(t *testing.T, cfg loadConfig, urls ...string) *load {
	t.Helper()
	if cfg.patience == 0 {
		cfg.patience = patience
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: t, cfg: cfg, cancel: cancel, refusal: make(map[bus.Reason]int)}
	seeds := allocatortest.Seed(t)
	for _, url := range urls {
		c := bus.NewClient(connect(t, url), cfg.options...)
		for range cfg.callers {
			sizes := rand.New(rand.NewPCG(seeds.Uint64(), seeds.Uint64()))
			l.wg.Go(func() { l.run(ctx, c, sizes) })
		}
	}
	t.Cleanup(func() {
		cancel()
		l.wg.Wait()
		if t.Failed() {
			_, text := l.unanswered()
			t.Log(text)
		}
	})
	return l
}

// run is one caller.
func (l *load) run(ctx context.Context, c *bus.Client, sizes *rand.Rand) {
	answered := time.Now()
	defer func() { raise(&l.longest, int64(time.Since(answered))) }()
	for ctx.Err() == nil && (l.cfg.total == 0 || l.ids.Load() < l.cfg.total) {
		floor, n := l.floor.Load(), l.size(sizes)
		attempt, cancel := context.WithTimeout(ctx, l.cfg.patience)
		ranges, err := l.take(attempt, c, n)
		gaveUp := attempt.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			l.record(ranges, floor)
			raise(&l.longest, int64(time.Since(answered)))
			answered = time.Now()
		case ctx.Err() != nil:
		case l.cfg.mayGiveUp && gaveUp:
			l.gaveUp.Add(1)
		case l.isExpected(err):
			pause := time.NewTimer(2 * time.Millisecond) // to leave the others some of the machine
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		default:
			l.fail(err)
			return
		}
	}
}

func (l *load) take(ctx context.Context, c *bus.Client, n int64) ([]bus.Range, error) {
	if l.cfg.tag == "" {
		return c.Snowflakes(ctx, n)
	}
	return c.Take(ctx, l.cfg.tag, n)
}

// size is mostly small, sometimes anything up to the largest batch.
func (l *load) size(sizes *rand.Rand) int64 {
	switch most := l.cfg.maxBatch; {
	case most <= 1 || sizes.IntN(4) == 0:
		return 1
	case sizes.IntN(8) == 0:
		return 1 + sizes.Int64N(most)
	default:
		return 1 + sizes.Int64N(max(1, most/64))
	}
}

func (l *load) record(ranges []bus.Range, floor int64) {
	l.checker.Add(ranges...)
	if l.cfg.tag != "" {
		l.taken.Add(l.cfg.tag, ranges...)
	} else {
		l.flakes.Add(slices.Clone(ranges)...)
	}
	for _, r := range ranges {
		l.ids.Add(r.Len())
		if l.cfg.each != nil {
			l.cfg.each(r)
		}
		if r.First < floor {
			l.stale.Store(r.First)
		}
		raise(&l.highest, r.Last)
	}
	l.replies.Add(1)
}

// raise makes v at least n.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); n > old && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

func (l *load) isExpected(err error) bool {
	for _, reason := range l.cfg.expected {
		if errors.Is(err, reason) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.refusal[reason]++
			return true
		}
	}
	return false
}

func (l *load) refusals(reason bus.Reason) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal[reason]
}

// unanswered returns how many calls ended without IDs, and describes them.
func (l *load) unanswered() (count int64, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count = l.gaveUp.Load()
	for _, n := range l.refusal {
		count += int64(n)
	}
	return count, fmt.Sprintf("%d of %d calls got no ID (%d without an answer in %v, refused: %v); longest time without an answer %v", count,
		count+l.replies.Load(), l.gaveUp.Load(), l.cfg.patience, l.refusal, time.Duration(l.longest.Load()).Round(time.Millisecond))
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		l.failure = err
	}
}

// more waits for so many further replies.
func (l *load) more(replies int64) {
	l.t.Helper()
	until := l.replies.Load() + replies
	testkit.Eventually(l.t, "replies", func() bool {
		l.check()
		return l.replies.Load() >= until
	})
}

// check fails the test at once if a caller has failed.
func (l *load) check() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		l.t.Fatalf("a caller failed: %v", l.failure)
	}
}

// checkIDs fails the test at once if an ID came twice, or if a caller has failed.
func (l *load) checkIDs() {
	l.t.Helper()
	if _, err := l.checker.Check(); err != nil {
		l.t.Fatal(err)
	}
	l.check()
}

// stop ends the load, or waits for its end if it has a total, and checks that
// no ID came twice. It returns how many came.
func (l *load) stop() int64 {
	l.t.Helper()
	if l.cfg.total == 0 {
		l.cancel()
	}
	l.wg.Wait()
	l.check()
	ids, err := l.checker.Check()
	if err != nil {
		l.t.Fatal(err)
	}
	if ids != l.ids.Load() {
		l.t.Errorf("the checker has %d IDs, the callers %d", ids, l.ids.Load())
	}
	l.t.Logf("%d IDs in %d replies, none twice", ids, l.replies.Load())
	return ids
}

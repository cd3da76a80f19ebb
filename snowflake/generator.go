package snowflake

import (
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Generator issues snowflakes of one worker at a time. Its methods are safe
// for concurrent use. Times within are Unix ms.
//
// Its goroutines are those of [Generator.Run]: one keeps the worker, one
// advances the ceiling on disk, one serves the requests that wait, one asks
// peers when the clock is in doubt, one notices that the process stood still.
type Generator struct {
	cfg        Config
	binding    Saved               // what the file must say to be this generator's; set by Run
	wake       chan struct{}       // of the goroutine that serves waiting requests
	verify     chan chan struct{}  // of the one that keeps the worker; what is sent is closed when it has looked
	prove      chan struct{}       // of the same: the process stood still, and the worker must be confirmed
	advanceNow chan struct{}       // of the one that advances the ceiling
	trying     Record              // the incarnation that was sent for a worker, without an answer; of the one that keeps it
	compared   time.Duration       // Mono until which the clock need not be compared with the peers'; of the same
	refused    bool                // told that the clock keeps it from starting; of the same
	started    time.Duration       // Mono
	random     func(n int64) int64 // in [0, n); whatever need not be the same for all
	capacity   int64               // most IDs that may be waited for

	saving sync.Mutex // held while the file is read, changed and written; never with mu

	mu        sync.Mutex
	guard     guard
	still     standstill
	seq       sequence
	lease     *lease // nil: no worker
	leased    bool   // there was one: the start is over
	forgotten bool   // the file may still know a worker that was lost
	// draining: nothing waits; closed: nothing is issued.
	draining, closed bool
	// why there is no worker, or no new ceiling; nil while that is under way.
	noWorker, noCeiling error

	small, large list.List // *Waiter
	missing      int64     // IDs that they wait for

	clock    clockState
	pauseEnd time.Duration // Mono; clockWaiting lasts until then

	// Episodes that have been told.
	lost   *Held // a worker that was lost and not replaced
	skewed bool
	ending bool
}

// lease is a worker and what of its time may be issued.
type lease struct {
	Record
	version  uint64
	floor    int64         // least time that may be issued
	ceiling  int64         // on disk: above all that is issued
	span     time.Duration // that was ahead when the registry last confirmed it
	failing  bool          // the registry did not confirm it the last time
	expiring bool          // told
	// unconfirmed: it comes from the file alone; the registry was away at the start.
	unconfirmed bool
}

// New returns a generator that has no worker until Run is called.
func New(cfg Config) *Generator {
	cfg = cfg.withDefaults()
	// No request can wait for more than a worker issues in the longest wait.
	capacity := cfg.Layout.PerMillisecond() * max(1, cfg.MaxWait.Milliseconds())
	cfg.MaxBatch = min(cfg.MaxBatch, capacity)
	now := cfg.Clock()
	g := &Generator{
		cfg: cfg, wake: make(chan struct{}, 1), verify: make(chan chan struct{}), prove: make(chan struct{}, 1), advanceNow: make(chan struct{}, 1),
		started:  now.Mono,
		guard:    guard{tolerance: cfg.MaxClockSkew, believed: now},
		still:    standstill{last: now},
		random:   rand.Int64N,
		seq:      sequence{size: cfg.Layout.PerMillisecond(), random: rand.Int64N},
		capacity: capacity,
	}
	g.seq.skip(cfg.Layout.Epoch) // whose first ID could be 0, which is none
	return g
}

// Take returns n IDs, all or none, in increasing order, and waits for them if
// it must. Each is greater than all that the generator issued before. Errors:
// ErrBadCount, ErrBatchTooLarge, ErrOverloaded, ErrNoWorker, ErrClockBackwards,
// ErrExhausted, ErrTimedOut, ErrClosed, and that of the context.
func (g *Generator) Take(ctx context.Context, n int64) ([]Range, error) {
	// Small enough to be inlined, so that room for one range is on the stack of
	// a caller that does not keep it.
	return g.take(ctx, make([]Range, 0, 1), n)
}

func (g *Generator) take(ctx context.Context, dst []Range, n int64) ([]Range, error) {
	ranges, waiter, err := g.Request(dst, n)
	if waiter == nil {
		return ranges, err
	}
	return waiter.Wait(ctx)
}

// Request issues n IDs and adds their ranges to dst. If it cannot do so at
// once, it returns a waiter whose Wait will have them: this is for callers that must not
// block. It does not allocate where dst has room. The errors are those of Take.
func (g *Generator) Request(dst []Range, n int64) ([]Range, *Waiter, error) {
	if n < 1 {
		return nil, nil, fmt.Errorf("%w: %d is not at least 1", ErrBadCount, n)
	}
	if n > g.cfg.MaxBatch {
		return nil, nil, fmt.Errorf("%w: %d IDs were asked for, the most is %d", ErrBatchTooLarge, n, g.cfg.MaxBatch)
	}
	large := n > smallRequest
	g.mu.Lock()
	defer g.mu.Unlock()
	t, wait, err := g.lookLocked(g.cfg.Clock())
	if err != nil {
		return nil, nil, err
	}
	if wait == 0 {
		g.serveLocked(t) // first come, first served
		g.seq.enter(t)
		if g.seq.room(t, large) >= n && (!large || g.large.Len() == 0) {
			return append(dst, g.issueLocked(n)), nil, nil
		}
	}
	w, err := g.queueLocked(n, large)
	if err == nil && wait == 0 {
		g.serveLocked(t)
	}
	return nil, w, err
}

// issueLocked issues n IDs of the current millisecond, which must have them.
func (g *Generator) issueLocked(n int64) Range {
	first := g.cfg.Layout.Compose(Parts{g.seq.ms, g.lease.Worker, g.seq.next})
	g.seq.next += n
	return Range{First: first, Last: first + n - 1}
}

// lookLocked decides what can be done at the reading r: issue IDs of times up
// to t, or, after wait, look again, or refuse.
func (g *Generator) lookLocked(r Reading) (t int64, wait time.Duration, err error) {
	const soon = time.Millisecond
	g.ranLocked(r)
	t = g.guard.at(r, g.seq.ms)
	switch l := g.lease; {
	case g.closed:
		return 0, 0, ErrClosed
	case t >= g.cfg.Layout.End():
		return 0, 0, ErrExhausted
	case l == nil && g.noWorker != nil:
		return 0, 0, fmt.Errorf("%w: %w", ErrNoWorker, g.noWorker)
	case l == nil:
		return t, soon, nil // it is on its way
	case g.still.doubtful() && g.still.failed != nil:
		return 0, 0, g.still.error(l.Worker)
	case g.still.doubtful():
		return t, lookAgain, nil // the confirmation is under way, and wakes the requests that wait
	case t >= l.ReservedUntil:
		return 0, 0, fmt.Errorf("%w: worker %d was reserved until %s, and the registry has not extended that",
			ErrNoWorker, l.Worker, text(l.ReservedUntil))
	case g.restingLocked(t) && l.floor-t <= restAtStart.Milliseconds():
		return t, time.Duration(l.floor-t) * time.Millisecond, nil
	}
	if wait, err = g.lookBackLocked(r, t); wait > 0 || err != nil {
		return t, wait, err
	}
	if t >= g.lease.ceiling {
		if g.noCeiling != nil {
			return 0, 0, fmt.Errorf("%w: the data folder cannot be written: %w", ErrNoWorker, g.noCeiling)
		}
		signal(g.advanceNow) // after a step forward; else it was raised in time
		return t, soon, nil
	}
	return t, 0, nil
}

// restingLocked reports whether the generator has started so soon that what its
// worker's holder issued before may lie ahead.
func (g *Generator) restingLocked(t int64) bool { return t < g.lease.floor && g.seq.ms < g.lease.floor }

// signal wakes the goroutine that waits on c.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will wake anyway
	}
}

// text is a time for people.
func text(ms int64) string { return time.UnixMilli(ms).UTC().Format(TimeFormat) }

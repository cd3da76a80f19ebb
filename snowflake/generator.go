package snowflake

import (
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// The defaults and limits of [Config].
const (
	DefaultMaxBatch     = 1_000_000
	DefaultMaxWait      = 3 * time.Second
	DefaultMaxWaiting   = 100_000
	DefaultMaxBack      = 5 * time.Millisecond
	DefaultMaxClockSkew = time.Second
	DefaultMaxClockWait = 5 * time.Second
	DefaultReserve      = 24 * time.Hour
	DefaultGrace        = 10 * time.Minute

	// LeastReserve is the shortest stretch of time that may be reserved ahead.
	LeastReserve = time.Second
)

const (
	// smallRequest is the most IDs of a request that has its part of each
	// millisecond to itself.
	smallRequest = 64
	// restAtStart is how far the ceiling that the last run left may be ahead of its
	// clock: so long a start may have to wait for it. What is longer is a clock that
	// went backwards since the start looked at it.
	restAtStart = (ceilingAhead + slack) * time.Millisecond
	// lookAgain bounds the pause between looks at the clock while requests wait.
	lookAgain = 100 * time.Millisecond
	// nextMillisecond is the pause while the present one is used up. The
	// scheduler makes it a millisecond or more; maxLag makes up for that.
	nextMillisecond = 500 * time.Microsecond
	// stalled is how far behind the ceiling may be before that is a fault.
	stalled = time.Second
	// ending is how long before the end of the layout an alert says so.
	ending = 365 * 24 * time.Hour
)

// Config says how a [Generator] works. Zero values of the bounds are replaced
// by the defaults.
type Config struct {
	Layout   Layout
	Registry Registry
	File     *File
	Place    string // of the data folder, see [Place]
	Node     string // name of the generator
	Clock    func() Reading
	Log      *slog.Logger

	// FirstWorker and LastWorker bound the worker that is taken.
	FirstWorker, LastWorker int64
	// Claimed reports whether another generator said lately that it holds the
	// worker, or has just lost it. Such a worker is not taken, whatever the registry
	// says: it may have been restored from a backup. Default: none does.
	Claimed func(worker int64) bool
	// Held reports whether another generator says so of this moment. Such a
	// worker is not used even if the record is this generator's own: one of the
	// two has a clone of the other's file. Default: none does.
	Held func(worker int64) bool
	// Settled reports whether the other generators have had time to say what they
	// hold. Until then no worker is taken but the own one. Default: they have.
	Settled func() bool
	// Peers asks the other running generators for their clocks, and returns by
	// how much each is ahead of this machine's. It must be safe for concurrent use
	// and return when its context is done. Default: there are none.
	Peers func(context.Context) []time.Duration
	// Notify is told of events, mostly under a lock: it must neither block nor
	// call the generator. Default: nobody.
	Notify func(Event)

	Reserve      time.Duration // most time that is reserved ahead
	Grace        time.Duration // what is left reserved after a clean stop
	MaxBack      time.Duration // a clock that went back by at most this much is waited for
	MaxClockSkew time.Duration // a step forward beyond it is not believed at once, nor a new node's clock so far from its peers'
	MaxClockWait time.Duration // a start waits for a clock that is behind the last run by at most this much
	MaxBatch     int64         // most IDs in one request
	MaxWait      time.Duration // longest wait of a request
	MaxWaiting   int64         // most requests that wait at a time
}

// Generator issues snowflakes of one worker at a time. Its methods are safe
// for concurrent use. Times within are Unix ms.
//
// Its goroutines are those of [Generator.Run]: one keeps the worker, one
// advances the ceiling on disk, one serves the requests that wait, one asks
// peers when the clock is in doubt.
type Generator struct {
	cfg        Config
	binding    Saved               // what the file must say to be this generator's; set by Run
	wake       chan struct{}       // of the goroutine that serves waiting requests
	verify     chan chan struct{}  // of the one that keeps the worker; what is sent is closed when it has looked
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
	if cfg.Clock == nil {
		cfg.Clock = SystemClock()
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Claimed == nil {
		cfg.Claimed = func(int64) bool { return false }
	}
	if cfg.Held == nil {
		cfg.Held = func(int64) bool { return false }
	}
	if cfg.Settled == nil {
		cfg.Settled = func() bool { return true }
	}
	if cfg.Peers == nil {
		cfg.Peers = func(context.Context) []time.Duration { return nil }
	}
	if cfg.Notify == nil {
		cfg.Notify = func(Event) {}
	}
	setDefault(&cfg.Reserve, DefaultReserve)
	setDefault(&cfg.Grace, DefaultGrace)
	setDefault(&cfg.MaxBack, DefaultMaxBack)
	setDefault(&cfg.MaxClockSkew, DefaultMaxClockSkew)
	setDefault(&cfg.MaxClockWait, DefaultMaxClockWait)
	setDefault(&cfg.MaxBatch, DefaultMaxBatch)
	setDefault(&cfg.MaxWait, DefaultMaxWait)
	setDefault(&cfg.MaxWaiting, DefaultMaxWaiting)
	// No request can wait for more than a worker issues in the longest wait.
	capacity := cfg.Layout.PerMillisecond() * max(1, cfg.MaxWait.Milliseconds())
	cfg.MaxBatch = min(cfg.MaxBatch, capacity)
	now := cfg.Clock()
	g := &Generator{
		cfg: cfg, wake: make(chan struct{}, 1), verify: make(chan chan struct{}), advanceNow: make(chan struct{}, 1),
		started:  now.Mono,
		guard:    guard{tolerance: cfg.MaxClockSkew, believed: now},
		random:   rand.Int64N,
		seq:      sequence{size: cfg.Layout.PerMillisecond(), random: rand.Int64N},
		capacity: capacity,
	}
	g.seq.skip(cfg.Layout.Epoch) // whose first ID could be 0, which is none
	return g
}

func setDefault[T comparable](v *T, to T) {
	if *v == *new(T) {
		*v = to
	}
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

// queueLocked makes a request wait.
func (g *Generator) queueLocked(n int64, large bool) (*Waiter, error) {
	if g.draining {
		return nil, ErrClosed
	}
	if g.missing+n > g.capacity || int64(g.small.Len()+g.large.Len()) >= g.cfg.MaxWaiting {
		return nil, ErrOverloaded
	}
	w := &Waiter{g: g, queue: &g.small, deadline: time.Now().Add(g.cfg.MaxWait), done: make(chan struct{}), missing: n}
	if large {
		w.queue = &g.large
	}
	w.place = w.queue.PushBack(w)
	g.missing += n
	signal(g.wake)
	return w, nil
}

// settleLocked ends a wait.
func (g *Generator) settleLocked(w *Waiter, err error) {
	w.queue.Remove(w.place)
	w.place = nil
	g.missing -= w.missing
	if err != nil {
		w.ranges, w.err = nil, err
	}
	close(w.done)
}

// serveLocked gives the requests that wait what the time until t has. Large
// and small ones have their part each; the large ones take turns.
func (g *Generator) serveLocked(t int64) {
	for g.missing > 0 {
		g.seq.enter(t)
		if g.large.Len() > 0 {
			g.fillLocked(&g.small, g.seq.size/share-g.seq.next)
		}
		for g.large.Len() > 0 {
			turn := min(g.seq.room(t, true), max(1, g.seq.size/8))
			if turn == 0 {
				break
			}
			first := g.large.Front().Value.(*Waiter)
			g.fillLocked(&g.large, turn)
			if first.place != nil {
				g.large.MoveToBack(first.place)
			}
		}
		g.fillLocked(&g.small, g.seq.room(t, false))
		if g.seq.ms >= t {
			g.seq.packed = g.seq.packed || g.missing > 0
			return
		}
	}
}

// fillLocked issues up to room IDs to the first of a queue, and those after it
// if room is left.
func (g *Generator) fillLocked(queue *list.List, room int64) {
	for queue.Len() > 0 && room > 0 {
		w := queue.Front().Value.(*Waiter)
		n := min(w.missing, room)
		r := g.issueLocked(n)
		if last := len(w.ranges) - 1; last >= 0 && w.ranges[last].Last+1 == r.First {
			w.ranges[last].Last = r.Last
		} else {
			w.ranges = append(w.ranges, r)
		}
		w.missing -= n
		g.missing -= n
		room -= n
		if w.missing == 0 {
			g.settleLocked(w, nil)
		}
	}
}

// lookLocked decides what can be done at the reading r: issue IDs of times up
// to t, or, after wait, look again, or refuse.
func (g *Generator) lookLocked(r Reading) (t int64, wait time.Duration, err error) {
	const soon = time.Millisecond
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

// serve gives what it can to the requests that wait, and returns when to look
// again; 0 is when there is something new.
func (g *Generator) serve() (again time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.missing == 0 {
		return 0
	}
	t, wait, err := g.lookLocked(g.cfg.Clock())
	switch {
	case err != nil:
		g.refuseLocked(err)
		return 0
	case wait > 0:
		return min(wait, lookAgain) // the clock may be set meanwhile
	}
	g.serveLocked(t)
	if g.missing == 0 {
		return 0
	}
	return nextMillisecond
}

// refuseLocked refuses all requests that wait.
func (g *Generator) refuseLocked(err error) {
	for _, queue := range []*list.List{&g.small, &g.large} {
		for queue.Len() > 0 {
			g.settleLocked(queue.Front().Value.(*Waiter), err)
		}
	}
}

// signal wakes the goroutine that waits on c.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will wake anyway
	}
}

// text is a time for people.
func text(ms int64) string { return time.UnixMilli(ms).UTC().Format(TimeFormat) }

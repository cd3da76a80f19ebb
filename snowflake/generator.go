package snowflake

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/leafbus/leafbus/allocator"
)

// The errors of a [Generator]. Test with [errors.Is]; the messages say more.
var (
	ErrBadCount      = allocator.ErrBadCount
	ErrBatchTooLarge = allocator.ErrBatchTooLarge
	ErrOverloaded    = errors.New("too many IDs are waited for")
	ErrTimedOut      = errors.New("waited too long for a snowflake")
	ErrClosed        = allocator.ErrClosed
	// ErrNoWorker: the generator holds no worker ID with a lasting reservation.
	ErrNoWorker = errors.New("no worker ID")
	// ErrExhausted: the layout has no time left, for good.
	ErrExhausted = errors.New("the layout is exhausted")
	// ErrMisconfigured: the registry is unavailable until an operator changes something there.
	ErrMisconfigured = allocator.ErrMisconfigured
	// ErrRefused: the registry must not be used until an operator has fixed what the message names.
	// It ends [Generator.Run] in the first minute, if that has not held a worker yet.
	ErrRefused = allocator.ErrRefused
)

// Generator issues snowflakes of one worker at a time. Its methods are safe for concurrent
// use. Times within are Unix ms.
//
// [Generator.Run] starts its goroutines. One keeps the worker. One raises the ceiling on disk. One
// serves the requests that wait, and notices that the process stood still. One asks the peers about
// a clock that stepped forward.
type Generator struct {
	cfg         Config
	incarnation string // of this run
	started     int64  // Mono
	signals     signals

	saving sync.Mutex // held while the file is written; mu may be locked under it, but not the other way round

	mu         sync.Mutex // guards all that follows
	clock      clockState
	standstill standstill
	seq        sequence
	worker     workerState
	queue      queue
	draining   bool // no request waits any more
	closed     bool // nothing is issued any more
}

// signals wake the goroutines of Run.
type signals struct {
	serve  chan struct{}      // requests may be served
	raise  chan struct{}      // the ceiling must be raised
	keep   chan struct{}      // the worker's record must be written, because the process stood still or the clock was set
	verify chan chan struct{} // the same, and then close what was sent
}

// wake wakes the goroutine that waits for the signal.
func wake(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default: // it will wake anyway
	}
}

// New returns a generator that has no worker until Run is called.
func New(cfg Config) *Generator {
	cfg = cfg.withDefaults()
	// No request can wait for more than a worker issues in the longest wait.
	capacity := cfg.Layout.PerUnit() * max(1, cfg.MaxWait.Milliseconds()/cfg.Layout.Unit())
	cfg.MaxBatch = min(cfg.MaxBatch, capacity)
	now := cfg.Clock()
	g := &Generator{
		cfg: cfg, incarnation: rand.Text(), started: now.Mono,
		signals: signals{
			serve: make(chan struct{}, 1), raise: make(chan struct{}, 1), keep: make(chan struct{}, 1),
			verify: make(chan chan struct{}),
		},
		clock:      clockState{guard: stepGuard{tolerance: cfg.MaxClockSkew.Milliseconds(), trusted: now}},
		standstill: standstill{last: now},
		seq:        sequence{unit: cfg.Layout.Unit(), size: cfg.Layout.PerUnit(), random: cfg.random},
		queue:      queue{capacity: capacity},
	}
	g.seq.skip(cfg.Layout.Epoch) // its first ID could be 0, which is no ID
	return g
}

// State is what a generator has and can do.
type State struct {
	Worker        int64 // -1: none
	ReservedUntil int64
	RegistryErr   error // why the last report did not reach the registry; nil: it did
	Waiting       int   // requests
	Blocked       bool  // requests wait until the registry has confirmed the worker, or the disk has taken the ceiling
	Err           error // why it cannot issue IDs now; nil: it can
}

// State returns the state. Call it now and then: it also notices what no request has noticed.
func (g *Generator) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, _, err := g.mayIssueLocked(g.cfg.Clock())
	s := State{Worker: -1, Waiting: g.queue.Len(), Err: err}
	w := g.worker.held
	if w == nil {
		if err == nil {
			s.Err = fmt.Errorf("%w: one is being reserved", ErrNoWorker)
		}
		return s
	}
	s.Worker, s.ReservedUntil, s.RegistryErr = w.Worker, w.ReservedUntil, g.worker.failed
	s.Blocked = g.standstill.doubtful() || t >= w.ceiling
	switch {
	case err != nil:
	case g.restingLocked(t):
		s.Err = fmt.Errorf("%w: worker %d rests until %s, because the last run may have issued earlier times", ErrNoWorker,
			w.Worker, text(w.floor))
	case t >= w.ceiling+stalled:
		s.Err = fmt.Errorf("%w: the data folder has not been written for a while", ErrNoWorker)
	}
	if s.RegistryErr != nil && !w.expiring && w.ReservedUntil-t <= (w.ReservedUntil-w.Reported)/2 {
		w.expiring = true
		g.cfg.Notify(WorkerExpiring{w.summary()})
	}
	if end := g.cfg.Layout.End(); !g.worker.ending && t > end-ending {
		g.worker.ending = true
		g.cfg.Notify(Ending{w.Worker, end})
	}
	return s
}

// Worker returns the worker that is held, or -1.
func (g *Generator) Worker() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.workerLocked()
}

func (g *Generator) workerLocked() int64 {
	if g.worker.held == nil {
		return -1
	}
	return g.worker.held.Worker
}

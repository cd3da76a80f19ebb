package snowflake

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A process that was frozen knows nothing of it. Meanwhile its data folder may have
// been started elsewhere, from a shared volume or a disk image, and its worker be in
// use there. The registry knows: each start writes its own incarnation into the worker's
// record. So a generator that stood still issues nothing until a write to its
// record has succeeded that began after the standstill. Until then it does not
// touch its file either.
//
// A shorter standstill goes unnoticed until the next report to the registry.

const (
	// standsStill is the longest time between two readings of the clock in a
	// process that runs.
	standsStill = time.Second
	// lookAlive is how often the clock is read if no request reads it. A busy
	// machine may be late by the rest of standsStill.
	lookAlive = 200 * time.Millisecond
)

// standstill knows whether the process stood still.
type standstill struct {
	last   Reading // when the process was last known to run
	times  int     // how often it stood still
	proven int     // how many of these were over when the registry was asked that last confirmed the worker
	long   int64   // ms of the last one
	failed error   // why the last attempt since then to prove the worker failed; nil: there was none
}

// doubtful reports whether the worker may be another's since a standstill.
func (s *standstill) doubtful() bool { return s.proven < s.times }

// ranLocked notes that the process runs at the reading r. If it stood still before
// that, the goroutine that keeps the worker is to prove it. The monotonic clock stops
// while a machine sleeps, so either clock counts: a wall clock that is set forward costs one
// write to the registry.
func (g *Generator) ranLocked(r Reading) {
	s := &g.still
	long := max((r.Mono - s.last.Mono).Milliseconds(), r.Wall-s.last.Wall)
	s.last = r
	if long > standsStill.Milliseconds() {
		s.times++
		s.long, s.failed = long, nil
		signal(g.prove)
	}
}

// ran notes that the process runs, and returns how often it stood still so far.
func (g *Generator) ran() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ranLocked(g.cfg.Clock())
	return g.still.times
}

// provenLocked takes in what came of an attempt to write to the worker's
// record, which began when the process had stood still so many times. The process
// may have stood still again since then. over says that nothing is in doubt any more.
func (g *Generator) provenLocked(times int, err error) (over bool) {
	g.ranLocked(g.cfg.Clock())
	s := &g.still
	switch {
	case err == nil && s.proven < times:
		s.proven, s.failed = times, nil
		return times == s.times
	case err != nil && s.doubtful() && times == s.times && !errors.Is(err, ErrConflict): // which passes
		s.failed = err
	}
	return false
}

// unproven says why the worker may not be used since a standstill, if an
// attempt to prove it has failed.
func (g *Generator) unproven() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.still.failed
}

func (s *standstill) error(worker int64) error {
	return fmt.Errorf("%w: the process stood still for %d ms, and the registry has not confirmed since that worker %d is still its own: %w",
		ErrNoWorker, s.long, worker, s.failed)
}

// lookAliveAlways does no I/O, so that a disk or a network that hangs does not look
// like a standstill.
func (g *Generator) lookAliveAlways(ctx context.Context) {
	tick := time.NewTicker(lookAlive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.ran()
		}
	}
}

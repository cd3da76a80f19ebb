package snowflake

import (
	"errors"
	"time"
)

// A frozen process does not notice that it is frozen. Meanwhile another machine may start its data
// folder, from a shared volume or a disk image, and use its worker. The registry shows that: each
// start writes its own incarnation into the worker's record. So after a standstill a generator
// writes to its record first. Until that write has succeeded, it issues nothing and does not touch
// its file.
//
// A generator does not notice a shorter standstill until its next report to the registry.

const (
	// standsStill is the longest time between two readings of the clock that does not count as a
	// standstill, in ms.
	standsStill = 1000
	// readClockEvery is how often the clock is read if no request reads it. On a busy
	// machine a reading may be late by the rest of standsStill.
	readClockEvery = 200 * time.Millisecond
)

// standstill knows whether the process stood still. Generator.mu guards it.
type standstill struct {
	last      Reading // when the process was last known to run
	times     int     // how often it stood still
	confirmed int     // the value of times when the last successful write to the record began
	long      int64   // of the last one
}

// doubtful reports whether another generator may have the worker since a standstill.
func (s *standstill) doubtful() bool { return s.confirmed < s.times }

// noteRunningLocked notes that the process runs at the reading r. If it stood still before that, it
// wakes the goroutine that keeps the worker, to confirm it. The monotonic clock stops while a
// machine sleeps, so the longer time of both clocks counts. A wall clock that is set forward costs
// one write to the registry.
func (g *Generator) noteRunningLocked(r Reading) {
	s := &g.standstill
	long := max(r.Mono-s.last.Mono, r.Wall-s.last.Wall)
	s.last = r
	if long > standsStill {
		s.times++
		s.long = long
		if g.worker.held != nil {
			g.worker.failed = nil
		}
		wake(g.signals.keep)
	}
}

// confirmLocked takes the result of an attempt to keep the worker. times is how often the process
// had stood still when the attempt began; it may have stood still again since then. over says that
// the worker is no longer in doubt.
func (g *Generator) confirmLocked(times int, err error) (over bool) {
	g.noteRunningLocked(g.cfg.Clock())
	s := &g.standstill
	if errors.Is(err, ErrConflict) || times < s.times && g.worker.held != nil {
		g.worker.failed = nil // the next attempt is under way
	} else {
		g.worker.failed = err
	}
	if err == nil && s.confirmed < times {
		s.confirmed = times
		return times == s.times
	}
	return false
}

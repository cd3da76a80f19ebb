package snowflake

import (
	"context"
	"fmt"

	"github.com/leafbus/leafbus/allocator"
)

// Take returns n IDs, all or none, in increasing order, and waits for them if it must. Each is
// greater than all that the generator issued before. Errors: ErrBadCount, ErrBatchTooLarge,
// ErrOverloaded, ErrNoWorker, ErrClockBackwards, ErrExhausted, ErrTimedOut, ErrClosed, and that of
// the context.
func (g *Generator) Take(ctx context.Context, n int64) ([]Range, error) {
	// Small enough to be inlined, so that room for one range is on the stack of a caller that does
	// not keep it.
	return g.take(ctx, make([]Range, 0, 1), n)
}

func (g *Generator) take(ctx context.Context, dst []Range, n int64) ([]Range, error) {
	ranges, later, err := g.Request(dst, n)
	if later == nil {
		return ranges, err
	}
	return later.Wait(ctx)
}

// Request issues n IDs and adds their ranges to dst. If it cannot do so at once, it returns a Later
// that gets them: this is for callers that must not block. It does not allocate if dst has room.
// The errors are those of Take.
func (g *Generator) Request(dst []Range, n int64) ([]Range, *allocator.Later, error) {
	if n < 1 {
		return nil, nil, fmt.Errorf("%w: %d is not at least 1", ErrBadCount, n)
	}
	if n > g.cfg.MaxBatch {
		return nil, nil, fmt.Errorf("%w: %d IDs were requested, the limit is %d", ErrBatchTooLarge, n, g.cfg.MaxBatch)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t, wait, err := g.mayIssueLocked(g.cfg.Clock())
	if err != nil {
		return nil, nil, err
	}
	if wait == 0 {
		g.serveLocked(t) // first come, first served
		g.seq.enter(t)
		if g.seq.size-g.seq.next >= n { // else some requests still wait, or this one must
			return append(dst, g.issueLocked(n)), nil, nil
		}
	}
	w, err := g.queueLocked(n)
	if err == nil && wait == 0 {
		g.serveLocked(t)
	}
	return nil, w, err
}

// issueLocked issues n IDs of the current unit of time, which must have them.
func (g *Generator) issueLocked(n int64) Range {
	first := g.cfg.Layout.Compose(Parts{g.seq.ms, g.worker.held.Worker, g.seq.next})
	g.seq.next += n
	return Range{First: first, Last: first + n - 1}
}

// mayIssueLocked decides what may be done at the reading r: issue IDs of times up to t if wait is
// 0, or check again after wait (ms), or refuse. t is the beginning of a unit of time, and stands
// for all of it. So a unit belongs to the reservation and to the ceiling that its beginning is
// before.
func (g *Generator) mayIssueLocked(r Reading) (t, wait int64, err error) {
	const soon = 1
	g.noteRunningLocked(r)
	now := g.timeLocked(r)
	t = g.cfg.Layout.UnitOf(now)
	switch w := g.worker.held; {
	case g.closed:
		return 0, 0, ErrClosed
	case t >= g.cfg.Layout.End():
		return 0, 0, ErrExhausted
	case w == nil && g.worker.failed != nil:
		return 0, 0, fmt.Errorf("%w: %w", ErrNoWorker, g.worker.failed)
	case w == nil:
		return t, soon, nil // one is being reserved
	case g.standstill.doubtful() && g.worker.failed != nil:
		return 0, 0, fmt.Errorf("%w: the process stood still for %d ms, and the registry has not confirmed since that "+
			"worker %d is still its own: %w", ErrNoWorker, g.standstill.long, w.Worker, g.worker.failed)
	case g.standstill.doubtful():
		return t, recheckAfter, nil // the confirmation is under way, and wakes the requests that wait
	case t >= w.ReservedUntil:
		return 0, 0, fmt.Errorf("%w: worker %d was reserved until %s, and the registry has not extended that",
			ErrNoWorker, w.Worker, text(w.ReservedUntil))
	case g.restingLocked(t) && w.floor-now <= restAtStart:
		return t, w.floor - now, nil
	}
	if wait, err = g.checkBackwardsLocked(r, now); wait > 0 || err != nil {
		return t, wait, err
	}
	if t >= g.worker.held.ceiling {
		if g.worker.noCeiling != nil {
			return 0, 0, fmt.Errorf("%w: the data folder cannot be written: %w", ErrNoWorker, g.worker.noCeiling)
		}
		wake(g.signals.raise) // after a step forward; else it was raised in time
		return t, soon, nil
	}
	return t, 0, nil
}

// restingLocked reports whether the generator started so recently that the worker's
// last holder may have issued later times than t.
func (g *Generator) restingLocked(t int64) bool {
	return t < g.worker.held.floor && g.seq.ms < g.worker.held.floor
}

const (
	// maxLag is how far behind the clock, in ms, a worker under full load may be; a longer unit of
	// time counts in its place. Time in which the process did not run is used up after it. So the
	// layout's limit is reached in spite of the scheduler.
	maxLag = 50
	// spread is the part of the sequence numbers that an idle unit of time may begin at: 0 to 127
	// of 4,096.
	spread = 32
	// turns is how many requests that wait may share a unit of time.
	turns = 8
)

// sequence numbers IDs within units of time. It only increases.
type sequence struct {
	unit   int64               // ms; never changes
	size   int64               // IDs in a unit
	random func(n int64) int64 // in [0, n); never changes
	ms     int64               // of the last ID: where its unit begins, in Unix ms
	next   int64               // sequence number; size: none left
	// packed: this unit is filled before the next one is entered, because the one
	// before it was full, or because requests wait for the rest of it.
	packed bool
}

// enter moves to the unit in which IDs are issued at the time t, which is where a unit begins. If
// that is entered because the last one was full, the sequence begins at 0. Else it begins at
// random, so that low traffic spreads over the shards of id % n.
func (s *sequence) enter(t int64) {
	lag, most := t-s.ms, max(maxLag, s.unit)
	switch {
	case lag <= 0, lag <= most && s.packed && s.next < s.size:
	case lag <= most && s.next == s.size:
		s.ms, s.next, s.packed = s.ms+s.unit, 0, true
	default:
		s.ms, s.next, s.packed = t, s.random(max(1, s.size/spread)), false
	}
}

// skip leaves all unused up to the unit that begins at ms.
func (s *sequence) skip(ms int64) {
	if ms >= s.ms {
		s.ms, s.next, s.packed = ms, s.size, false
	}
}

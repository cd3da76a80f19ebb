package snowflake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

const (
	// firstReserve and the time since the start bound how far ahead is reserved. So a
	// generator that crashes again and again does not use up the workers.
	firstReserve = time.Minute
	// listed is how many holders an error lists.
	listed = 8
)

// workerState is the worker that a generator holds, and what it knows of earlier ones. Generator.mu guards it.
type workerState struct {
	held         *heldWorker // nil: none. Only the goroutine that keeps the worker changes which one
	started      bool        // a worker was held: the start is over
	fileOutdated bool        // the file may still name a worker that was lost
	// Why there is no worker, or no new ceiling. nil while that is under way.
	noWorker, noCeiling error

	lost   *Held // a lost worker that was reported and not replaced
	ending bool  // the end of the layout was reported
}

// keeperState belongs to the goroutine that keeps the worker alone.
type keeperState struct {
	unanswered      Record        // the worker and the incarnation of a write that had no answer
	comparedUntil   time.Duration // Mono until which the clock need not be compared with the peers' clocks
	agreed          bool          // when it was compared last, there were peers that agreed
	refusalReported bool          // that the clock keeps the generator from taking a worker
}

// heldWorker is a worker and which of its times may be issued.
type heldWorker struct {
	Record
	version  uint64
	floor    int64 // the earliest time that may be issued
	ceiling  int64 // on disk: above all that is issued
	failing  error // why the registry did not confirm it the last time; nil: it did
	expiring bool  // reported
	// unconfirmed: it comes from the file alone, because the registry was unavailable at the start.
	unconfirmed bool
}

func (w *heldWorker) summary() Held { return Held{w.Worker, w.ReservedUntil} }

// keepWorker takes one step to get a worker and to hold it: it acquires one, or
// extends the reservation of the one that it holds. It is for one goroutine.
func (g *Generator) keepWorker(ctx context.Context) error {
	g.mu.Lock()
	g.noteRunningLocked(g.cfg.Clock())
	standstills, starting := g.standstill.times, !g.worker.started
	held, err := g.worker.held, g.worker.noCeiling
	g.mu.Unlock()
	if errors.Is(err, ErrNotAlone) {
		return err
	}
	err = g.nextSteps(ctx, held)
	g.mu.Lock()
	over, long := g.confirmLocked(standstills, err), g.standstill.long
	switch {
	case g.worker.held != nil:
		g.worker.noWorker = nil
		g.worker.held.failing = err
	case !errors.Is(err, ErrConflict): // a conflict passes
		g.worker.noWorker = err
	}
	g.mu.Unlock()
	wake(g.signals.serve)
	if over && !starting { // before Run nothing reads the clock often enough
		g.cfg.Log.Warn("the process or its machine stood still, or its clock was set forward; the registry has confirmed "+
			"the worker since", "ms", long)
	}
	return err
}

// until is the end of a reservation that is made at the time t: where a unit of time ends. reserved is its present end.
func (g *Generator) until(reserved, t int64, r Reading) int64 {
	ahead := min(g.cfg.Reserve, max(firstReserve, r.Mono-g.started))
	return min(g.cfg.Layout.End(), g.cfg.Layout.UnitFrom(max(reserved, t+ahead.Milliseconds())))
}

// nextSteps takes the next step, and then others, until a worker is held or none can be had now.
func (g *Generator) nextSteps(ctx context.Context, held *heldWorker) error {
	for {
		s, err := g.look(ctx, held)
		if err != nil {
			return err
		}
		next, e, err := s.decide()
		if _, behind := errors.AsType[*BackwardsError](err); (behind || next == abandon) &&
			millis(s.behind()) > g.cfg.MaxClockWait {
			g.reportSkewed(ClockSkewed{Now: s.wall, Recorded: s.recorded(), Threshold: g.cfg.MaxClockWait})
		}
		switch next {
		case extend:
			return g.extend(ctx, held)
		case useFile:
			g.holdFromFile(s.saved)
		case takeOwn:
			return g.takeOver(ctx, e, s.saved)
		case takeEnded:
			e.Acquired, e.Incarnation = s.t, ""
			return g.takeOver(ctx, e, Saved{Worker: e.Worker, Ceiling: e.ReservedUntil})
		case add:
			if err = g.add(ctx, g.cfg.choice()); errors.Is(err, ErrFull) { // peers hold the rest
				err = s.allTaken()
			}
			return err
		case release:
			err = g.releaseUnwanted(ctx, e)
		case abandon:
			err = g.abandon(e)
		case lose:
			err = g.lose(Held{s.saved.Worker, s.saved.ReservedUntil}, min(s.saved.Ceiling, s.saved.ReservedUntil), s.t)
		}
		if err != nil {
			return err
		}
	}
}

// look finds out what the next step depends on.
func (g *Generator) look(ctx context.Context, held *heldWorker) (*situation, error) {
	s := &situation{cfg: &g.cfg}
	g.mu.Lock()
	s.confirmed = held != nil && !held.unconfirmed
	g.mu.Unlock()
	if s.confirmed {
		return s, nil
	}
	if err := g.compareClock(ctx); err != nil {
		return nil, err
	}
	if s.entries, s.away = g.cfg.Registry.List(ctx); s.away != nil {
		s.away = fmt.Errorf("asking the registry of workers: %w", s.away)
	}
	s.saved, s.known = g.ownSaved()
	s.starting, s.agreed = g.starting(), g.keeper.agreed
	t, r := g.now()
	s.t, s.wall = t, r.Wall
	return s, nil
}

// holdFromFile holds the worker that the file names while the registry is unavailable, for
// as long as the reservation lasts.
func (g *Generator) holdFromFile(s Saved) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.timeLocked(g.cfg.Clock())
	switch {
	case !g.cfg.inRange(s.Worker) || g.cfg.HeldByPeer(s.Worker): // a peer that holds it has a clone of the file
		g.worker.held = nil
		return
	case g.worker.held != nil || t >= s.ReservedUntil || !g.cfg.PeersKnown():
		return
	}
	g.holdLocked(&heldWorker{
		Record: Record{Worker: s.Worker, ReservedUntil: s.ReservedUntil, Reported: t},
		floor:  s.Ceiling, ceiling: s.Ceiling, unconfirmed: true,
	})
}

// takeOver writes a new incarnation of this generator into a record that it may have: its own,
// of which the file said s, or one with an ended reservation. The file knows the new
// incarnation first, so that a start after a crash recognizes it.
func (g *Generator) takeOver(ctx context.Context, e Entry, s Saved) error {
	t, r := g.now()
	unanswered := &g.keeper.unanswered
	if unanswered.Worker != e.Worker || unanswered.Incarnation == "" { // else that write may still happen
		*unanswered = Record{Worker: e.Worker, Incarnation: rand.Text()}
	}
	next := Record{
		Worker: e.Worker, Node: g.cfg.Node, Incarnation: unanswered.Incarnation,
		ReservedUntil: g.until(e.ReservedUntil, t, r), Acquired: e.Acquired, Reported: t,
	}
	err := g.save(func(f *Saved) {
		f.Worker, f.Ceiling, f.ReservedUntil = e.Worker, max(s.Ceiling, f.Ceiling), s.ReservedUntil
		f.Incarnation, f.Pending = e.Incarnation, next.Incarnation
	})
	if err != nil {
		return err
	}
	version, err := g.cfg.Registry.Put(ctx, next, e.Version)
	if err != nil {
		return fmt.Errorf("reserving worker %d: %w", e.Worker, err)
	}
	return g.hold(Entry{Record: next, Version: version}, e.Reported)
}

// add reserves a worker that was never held.
func (g *Generator) add(ctx context.Context, choice Choice) error {
	t, r := g.now()
	next := Record{
		Node: g.cfg.Node, Incarnation: rand.Text(), ReservedUntil: g.until(0, t, r), Acquired: t, Reported: t,
	}
	if err := g.save(func(f *Saved) { g.forget(f); f.Pending = next.Incarnation }); err != nil {
		return err
	}
	e, err := g.cfg.Registry.Add(ctx, next, choice)
	if err != nil {
		return fmt.Errorf("reserving a worker: %w", err)
	}
	return g.hold(e, 0)
}

// hold holds a worker from now on, because the registry has this generator's record e.
// after is the last report in the record that e replaced; 0: there was none.
func (g *Generator) hold(e Entry, after int64) error {
	var floor int64
	err := g.save(func(f *Saved) {
		f.Worker, f.Incarnation, f.Pending, f.ReservedUntil = e.Worker, e.Incarnation, "", e.ReservedUntil
		floor = f.Ceiling
	})
	if err != nil {
		return err
	}
	g.keeper.unanswered = Record{}
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.worker.held
	if w == nil {
		w = &heldWorker{floor: floor, ceiling: floor}
		g.holdLocked(w)
	}
	w.Record, w.version, w.unconfirmed = e.Record, e.Version, false
	g.extendedLocked(w)
	g.cfg.Notify(WorkerAcquired{w.summary(), w.floor, after})
	if g.keeper.refusalReported {
		g.keeper.refusalReported = false
		g.cfg.Notify(Recovered{w.Worker, EpisodeSkewed})
	}
	if g.worker.lost != nil {
		g.cfg.Notify(Recovered{g.worker.lost.Worker, EpisodeLost})
		g.worker.lost = nil
	}
	return nil
}

// holdLocked begins to issue from a worker.
func (g *Generator) holdLocked(w *heldWorker) {
	g.worker.held, g.worker.started = w, true
	w.floor = g.cfg.Layout.UnitFrom(w.floor) // the rest of the unit before belongs to the last holder, or the last run
	g.seq.skip(w.floor - g.seq.unit)         // the floor is above what was issued before, under any worker
	wake(g.signals.raise)
}

// extendedLocked notes that the registry confirmed the worker.
func (g *Generator) extendedLocked(w *heldWorker) {
	if w.expiring {
		w.expiring = false
		g.cfg.Notify(Recovered{w.Worker, EpisodeExpiring})
	}
}

// extend extends the reservation, and thereby verifies that the record is still this generator's.
func (g *Generator) extend(ctx context.Context, w *heldWorker) error {
	t, r := g.now()
	next := w.Record
	next.ReservedUntil, next.Reported = g.until(w.ReservedUntil, t, r), t
	version, err := g.cfg.Registry.Put(ctx, next, w.version)
	if errors.Is(err, ErrConflict) {
		if lost := g.reconcile(ctx, w); lost != nil {
			return lost
		}
	}
	if err != nil { // after a conflict with its own unanswered write, the next attempt succeeds
		return fmt.Errorf("extending the reservation of worker %d: %w", w.Worker, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	w.Record, w.version = next, version
	g.extendedLocked(w)
	return nil
}

// reconcile finds out why the record is not as this generator left it: its own unanswered
// write, a registry that was restored, or another holder. If it returns nil, the record is
// still this generator's, and w is what the record says.
func (g *Generator) reconcile(ctx context.Context, w *heldWorker) error {
	entries, err := g.cfg.Registry.List(ctx)
	if err != nil {
		return fmt.Errorf("asking the registry for worker %d: %w", w.Worker, err)
	}
	t, _ := g.now()
	for _, e := range entries {
		if e.Worker == w.Worker && e.Incarnation == w.Incarnation {
			g.mu.Lock()
			defer g.mu.Unlock()
			w.Record, w.version = e.Record, e.Version // even if it reserves less
			return nil
		}
	}
	if err := g.lose(w.summary(), w.ReservedUntil, t); err != nil {
		g.cfg.Log.Error("the file of the lost worker cannot be written", "error", err)
	}
	return fmt.Errorf("%w: worker %d is lost; its record is missing or belongs to another generator", ErrConflict,
		w.Worker)
}

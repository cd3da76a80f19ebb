package snowflake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

const (
	// firstReserve and the time since the start bound how far ahead is reserved. So a
	// generator that crashes again and again does not use up the workers.
	firstReserve = 60_000 // ms
	// mostSteps bounds the steps of one attempt. The longest way: a report finds another record,
	// the worker is lost, and another one is taken.
	mostSteps = 4
)

// workerState is the worker that a generator holds, and what it knows of earlier ones. Generator.mu
// guards it.
type workerState struct {
	held    *heldWorker // nil: none. Only the goroutine that keeps the worker changes which one
	started bool        // a worker was held: the start is over
	saved   Saved       // what the file says, or will say after the next write that succeeds
	// Why the last attempt to keep a worker failed, and the last write of the ceiling. nil: it did
	// not, or the next one is under way.
	failed, noCeiling error

	end    int64 // of the reservation, after a clean stop; 0: Run goes on
	lost   *Held // a lost worker that was reported and not replaced
	ending bool  // the end of the layout was reported
}

// heldWorker is a worker and which of its times may be issued.
type heldWorker struct {
	// Entry is what the registry confirmed last. Version 0: the record must be looked up. No
	// incarnation: it comes from the file alone, because the registry was unavailable at the start.
	Entry
	floor    int64 // the earliest time that may be issued
	ceiling  int64 // on disk: above all that is issued
	expiring bool  // reported
}

func (w *heldWorker) summary() Held { return Held{w.Worker, w.ReservedUntil} }

// keepWorker gets a worker, or extends the reservation of the one that is held. It is for one
// goroutine.
func (g *Generator) keepWorker(ctx context.Context) error {
	g.mu.Lock()
	g.noteRunningLocked(g.cfg.Clock())
	standstills, err := g.standstill.times, g.worker.noCeiling
	g.mu.Unlock()
	if errors.Is(err, ErrNotAlone) {
		return err
	}
	err = g.takeSteps(ctx)
	g.mu.Lock()
	over, long := g.confirmLocked(standstills, err), g.standstill.long
	g.mu.Unlock()
	wake(g.signals.serve)
	if over {
		g.cfg.Log.Warn("the process or its machine stood still, or its clock was set forward; the registry has confirmed "+
			"the worker since", "ms", long)
	}
	return err
}

// takeSteps takes one step after the other, until a worker is held or none can be had now.
func (g *Generator) takeSteps(ctx context.Context) (err error) {
	for range mostSteps {
		s, failed := g.look(ctx)
		if failed != nil {
			return failed
		}
		next, e, why := s.decide()
		g.mu.Lock()
		g.reportSkewedLocked(s.skewed())
		g.mu.Unlock()
		done := true
		switch next {
		case wait:
			err = why
		case extend:
			err = g.extend(ctx, e)
			done = !errors.Is(err, ErrConflict) // then it looks whose the record is
		case useFile:
			g.hold(e, 0)
			err = why
		case take:
			if err = g.reserve(ctx, e); errors.Is(err, ErrFull) { // peers hold the rest
				err = s.allTaken()
			}
		case abandon:
			err = g.abandon(e, why)
			done = err != nil
		case lose:
			err = g.lose(s.t)
			done = err != nil
		}
		if done {
			return err
		}
	}
	return cmp.Or(err, ErrConflict) // it goes on soon
}

// look finds out what the next step depends on.
func (g *Generator) look(ctx context.Context) (s *situation, err error) {
	s = &situation{cfg: &g.cfg}
	g.mu.Lock()
	s.starting, s.stopping = !g.worker.started, g.worker.end > 0
	if w := g.worker.held; w != nil {
		s.held = w.Entry
	}
	g.mu.Unlock()
	if s.held.Version != 0 {
		return s, nil
	}
	if s.starting {
		if s.peers, err = g.askPeers(ctx); err != nil {
			return nil, err
		}
	}
	if s.entries, s.away = g.cfg.Registry.List(ctx); s.away != nil {
		s.away = fmt.Errorf("asking the registry of workers: %w", s.away)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.cfg.Clock()
	s.saved, s.t, s.wall = g.worker.saved, g.timeLocked(r), r.Wall
	return s, nil
}

// until is the end of a reservation that is made now: where a unit of time ends. reserved is its
// present end.
func (g *Generator) until(reserved int64) (until, t int64) {
	g.mu.Lock()
	r := g.cfg.Clock()
	t = g.timeLocked(r)
	g.mu.Unlock()
	if g.worker.end > 0 { // only this goroutine changes it
		return g.worker.end, t
	}
	ahead := min(g.cfg.Reserve.Milliseconds(), max(firstReserve, r.Mono-g.started))
	return min(g.cfg.Layout.End(), g.cfg.Layout.UnitFrom(max(reserved, t+ahead))), t
}

// reserve reserves the worker of e. Without a version e is no record: the registry chooses a worker
// that has none. The file knows this run's incarnation first, so that a start after a crash
// recognizes the record.
func (g *Generator) reserve(ctx context.Context, e Entry) (err error) {
	until, t := g.until(e.ReservedUntil)
	next := Record{
		Worker: e.Worker, Node: g.cfg.Node, Incarnation: g.incarnation,
		ReservedUntil: until, Acquired: cmp.Or(e.Acquired, t), Reported: t,
	}
	err = g.save(func(s *Saved) {
		if e.Incarnation == "" { // another generator's: it may have issued all that it had reserved
			s.Ceiling = max(s.Ceiling, e.ReservedUntil)
		}
		s.Worker, s.Incarnation, s.Pending = e.Worker, e.Incarnation, g.incarnation
	})
	if err != nil {
		return err
	}
	made := Entry{Record: next}
	if e.Version == 0 {
		if made, err = g.cfg.Registry.Add(ctx, next, g.cfg.choice()); err != nil {
			return fmt.Errorf("reserving a worker: %w", err)
		}
	} else if made.Version, err = g.cfg.Registry.Put(ctx, next, e.Version); err != nil {
		return fmt.Errorf("reserving worker %d: %w", e.Worker, err)
	}
	g.hold(made, e.Reported)
	return nil
}

// hold holds the worker of e from now on. Without a version e is from the file, and a worker that
// is held stays as it is. after is the last report in the record that e replaced; 0: there was
// none.
func (g *Generator) hold(e Entry, after int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w, s := g.worker.held, &g.worker.saved
	if w == nil {
		// The rest of the unit before belongs to the last holder, or the last run. Nothing is
		// issued before the ceiling is raised, which also saves what is changed here.
		w = &heldWorker{Entry: e, floor: g.cfg.Layout.UnitFrom(s.Ceiling), ceiling: s.Ceiling}
		g.worker.held, g.worker.started = w, true
		g.seq.skip(w.floor - g.seq.unit) // the floor is above what was issued before, under any worker
		wake(g.signals.raise)
	}
	if e.Version == 0 {
		return
	}
	s.Worker, s.Incarnation, s.Pending, s.ReservedUntil = e.Worker, e.Incarnation, "", e.ReservedUntil
	g.confirmedLocked(w, e)
	g.cfg.Notify(WorkerAcquired{w.summary(), w.floor, after})
	if g.worker.lost != nil {
		g.cfg.Notify(Recovered{g.worker.lost.Worker, EpisodeLost})
		g.worker.lost = nil
	}
}

// confirmedLocked notes that the registry has the record e of the worker.
func (g *Generator) confirmedLocked(w *heldWorker, e Entry) {
	w.Entry = e
	if w.expiring {
		w.expiring = false
		g.cfg.Notify(Recovered{w.Worker, EpisodeExpiring})
	}
}

// extend extends the reservation, and thereby verifies that the record e is still this generator's.
func (g *Generator) extend(ctx context.Context, e Entry) error {
	w := g.worker.held // only this goroutine changes which one
	g.mu.Lock()
	w.Entry = e // even if it reserves less: the registry may have been restored
	if g.worker.end > 0 {
		w.ReservedUntil = g.worker.end // as in the file
	}
	g.mu.Unlock()
	next := e.Record
	next.ReservedUntil, next.Reported = g.until(e.ReservedUntil)
	version, err := g.cfg.Registry.Put(ctx, next, e.Version)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case errors.Is(err, ErrConflict): // by its own write that had no answer, by a restore, or by another generator
		w.Version = 0
	case err == nil:
		g.confirmedLocked(w, Entry{Record: next, Version: version})
		return nil
	}
	return fmt.Errorf("extending the reservation of worker %d: %w", w.Worker, err)
}

// abandon makes this generator a new node, which takes another worker. The record e stays reserved,
// which bounds the next holder. So the file may forget the ceiling.
func (g *Generator) abandon(e Entry, why error) error {
	g.cfg.Log.Warn("taking another worker", "because", why, "worker", e.Worker, "reserved_until", text(e.ReservedUntil))
	return g.save(func(s *Saved) {
		s.forget()
		s.Ceiling = 0
	})
}

// lose gives up a worker that is not this generator's any more, in memory before the file. It
// reports nothing if the reservation had ended at the time t while the generator did not run: then
// another generator may take the worker.
func (g *Generator) lose(t int64) error {
	g.mu.Lock()
	w, s := g.worker.held, &g.worker.saved
	lost, until := Held{s.Worker, s.ReservedUntil}, min(s.Ceiling, s.ReservedUntil)
	if w != nil {
		lost = w.summary()
		s.Ceiling = min(s.Ceiling, g.seq.ms+1) // the file alone does not know it so well
		until = s.Ceiling
	}
	if w != nil || lost.Worker >= 0 && t < lost.ReservedUntil {
		if w != nil && w.expiring {
			g.cfg.Notify(Recovered{lost.Worker, EpisodeExpiring})
		}
		g.clearBackwardsLocked(lost.Worker) // the next worker starts without it
		g.cfg.Notify(WorkerLost{lost, until})
		g.worker.lost = &lost
		defer g.cfg.Log.Warn("the worker is lost: its record is missing or belongs to another generator; taking another "+
			"worker", "worker", lost.Worker)
	}
	g.worker.held = nil
	s.forget()
	g.mu.Unlock()
	return g.write()
}

// shorten ends the reservation earlier, after a clean stop. It keeps what a restart may need while
// the registry is unavailable. The generator keeps to the new end, in memory and in the file,
// before the record is lowered. So a lost answer changes nothing, and the generator may still issue
// times before that end.
func (g *Generator) shorten(ctx context.Context) error {
	g.mu.Lock()
	r := g.cfg.Clock()
	g.noteRunningLocked(r)
	w := g.worker.held
	if w == nil {
		g.mu.Unlock()
		return nil
	}
	if g.standstill.doubtful() { // another process may have the worker and the file
		g.mu.Unlock()
		return fmt.Errorf("the process stood still, and the registry has not confirmed since that worker %d is still its own",
			w.Worker)
	}
	used := g.seq.ms + 1
	end := min(w.ReservedUntil, max(g.timeLocked(r), used)+g.cfg.Grace.Milliseconds())
	end = g.cfg.Layout.UnitFrom(max(end, used)) // an old list may have reserved less than was used
	w.ReservedUntil, g.worker.end = end, end
	g.worker.saved.ReservedUntil = min(g.worker.saved.ReservedUntil, end)
	g.mu.Unlock()
	if err := g.write(); err != nil {
		return err
	}
	if err := g.takeSteps(ctx); err != nil {
		return fmt.Errorf("shortening the reservation of worker %d: %w", w.Worker, err)
	}
	g.cfg.Notify(WorkerReleased{w.summary()})
	return nil
}

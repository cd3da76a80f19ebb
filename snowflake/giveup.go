package snowflake

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// releaseUnwanted releases the own worker e, because the configuration no longer allows it. It
// gives the worker up in memory and in the file first. The file's ceiling is above all that was issued.
func (g *Generator) releaseUnwanted(ctx context.Context, e Entry) error {
	g.mu.Lock()
	g.worker.held, g.worker.fileOutdated = nil, true
	g.mu.Unlock()
	if err := g.save(g.forget); err != nil {
		return err
	}
	saved, _ := g.ownSaved()
	e.ReservedUntil = min(e.ReservedUntil, max(saved.Ceiling, e.Acquired)) // it may never have been used
	if _, err := g.cfg.Registry.Put(ctx, e.Record, e.Version); err != nil {
		return fmt.Errorf("releasing worker %d, which the configuration no longer allows: %w", e.Worker, err)
	}
	g.cfg.Notify(WorkerReleased{Held{e.Worker, e.ReservedUntil}})
	return nil
}

// abandon makes this generator a new node at a start, because its last run had a clock that was ahead: the worker e
// can only be used when the right clock has caught up. Its record stays reserved, which bounds the next holder. So
// the file may forget the ceiling.
func (g *Generator) abandon(e Entry) error {
	g.cfg.Log.Warn("in the last run the clock of this generator was ahead of the time that it and most others have now; "+
		"taking another worker",
		"worker", e.Worker, "reserved_until", text(e.ReservedUntil))
	return g.save(func(f *Saved) { *f = g.identity })
}

// lose gives up a worker that is not this generator's any more, in memory and in the file. It
// reports nothing if the reservation had ended at the time t while the generator did not run:
// then another generator may take the worker. ceiling is above all that was issued.
func (g *Generator) lose(held Held, ceiling, t int64) error {
	g.mu.Lock()
	used := int64(math.MaxInt64) // the file alone knows
	w := g.worker.held
	if w != nil {
		used = g.seq.ms + 1
	}
	if w != nil || held.Worker >= 0 && t < held.ReservedUntil {
		if w != nil && w.expiring {
			g.cfg.Notify(Recovered{held.Worker, EpisodeExpiring})
		}
		g.clearBackwardsLocked(held.Worker) // the next worker starts without it
		g.cfg.Notify(WorkerLost{held, min(used, ceiling)})
		g.worker.lost = &held
		defer g.cfg.Log.Warn("the worker is lost: its record is missing or belongs to another generator; taking another "+
			"worker", "worker", held.Worker)
	}
	g.worker.held, g.worker.fileOutdated = nil, true
	g.mu.Unlock()
	return g.save(func(f *Saved) {
		g.forget(f)
		f.Ceiling = min(f.Ceiling, used)
	})
}

// forget makes the file say that there is no worker. What was issued under any worker stays
// below the ceiling, because the same worker may be taken again.
func (g *Generator) forget(f *Saved) {
	ceiling := f.Ceiling
	*f = g.identity
	f.Ceiling = ceiling
}

// shorten ends the reservation earlier, after a clean stop. It keeps what a restart may need while the registry
// is unavailable. The generator keeps to the new end, in memory and in the file, before the record is lowered.
// So a lost answer changes nothing, and the generator may still issue times before that end.
func (g *Generator) shorten(ctx context.Context) error {
	t, _ := g.now()
	g.mu.Lock()
	g.noteRunningLocked(g.cfg.Clock())
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
	used := g.seq.ms + 1 // an old list may have reserved less since then
	w.ReservedUntil = g.cfg.Layout.UnitFrom(max(used, min(w.ReservedUntil, max(t, used)+g.cfg.Grace.Milliseconds())))
	next := w.Record
	g.mu.Unlock()
	err := g.save(func(f *Saved) { f.ReservedUntil = min(f.ReservedUntil, next.ReservedUntil) })
	if err != nil || w.unconfirmed {
		return err
	}
	next.Reported = t
	_, err = g.cfg.Registry.Put(ctx, next, w.version)
	if errors.Is(err, ErrConflict) { // the end of Run may have cut off a report that was written
		if lost := g.reconcile(ctx, w); lost != nil {
			return lost
		}
		g.mu.Lock()
		w.ReservedUntil = next.ReservedUntil // as in the file
		g.mu.Unlock()
		_, err = g.cfg.Registry.Put(ctx, next, w.version)
	}
	if err != nil {
		return fmt.Errorf("shortening the reservation of worker %d: %w", w.Worker, err)
	}
	g.cfg.Notify(WorkerReleased{w.summary()})
	return nil
}

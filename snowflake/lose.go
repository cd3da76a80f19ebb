package snowflake

import (
	"context"
	"fmt"
	"math"
)

// leave gives the own worker e free, which is not one of those to choose from
// any more: first in memory and in the file, whose ceiling is above all that was issued.
func (g *Generator) leave(ctx context.Context, e Entry) error {
	g.mu.Lock()
	g.lease, g.forgotten = nil, true
	g.mu.Unlock()
	if err := g.save(g.forget); err != nil {
		return err
	}
	saved, _ := g.own()
	e.ReservedUntil = min(e.ReservedUntil, max(saved.Ceiling, e.Acquired)) // it may never have been used
	if _, err := g.cfg.Registry.Put(ctx, e.Record, e.Version); err != nil {
		return fmt.Errorf("giving up worker %d, which is not wanted any more: %w", e.Worker, err)
	}
	g.cfg.Notify(WorkerReleased{Held{e.Worker, e.ReservedUntil}})
	return g.acquire(ctx)
}

// reconcile finds out why the record is not as this generator left it: an own
// write whose answer was lost, a registry that was restored, or another holder.
// Without an error it is still this generator's, and the lease as the record says.
func (g *Generator) reconcile(ctx context.Context, l *lease) error {
	entries, err := g.cfg.Registry.List(ctx)
	if err != nil {
		return fmt.Errorf("asking the registry for worker %d: %w", l.Worker, err)
	}
	t, _ := g.now()
	for _, e := range entries {
		if e.Worker == l.Worker && e.Incarnation == l.Incarnation {
			g.mu.Lock()
			defer g.mu.Unlock()
			l.Record, l.version = e.Record, e.Version // it counts also if it is less
			return nil
		}
	}
	if err := g.lose(l.held(), t); err != nil {
		g.cfg.Log.Error("the file of the lost worker cannot be written", "error", err)
	}
	return fmt.Errorf("%w: worker %d is lost, its record is gone, or another's", ErrConflict, l.Worker)
}

// lose gives up a worker that is not this generator's any more, in memory and in
// the file. That it was taken after its reservation had ended, at the time t, while
// this generator did not run, is the way of things.
func (g *Generator) lose(held Held, t int64) error {
	g.mu.Lock()
	used := int64(math.MaxInt64) // the file alone knows
	if g.lease != nil {
		used = g.seq.ms + 1
	}
	if g.lease != nil || held.Worker >= 0 && t < held.ReservedUntil {
		if g.lease != nil && g.lease.expiring {
			g.cfg.Notify(Recovered{held.Worker, EpisodeExpiring})
		}
		if g.clock != clockFine {
			g.clock = clockFine // with another worker it begins anew
			g.cfg.Notify(Recovered{held.Worker, EpisodeBackwards})
		}
		g.cfg.Notify(WorkerLost{held})
		g.lost = &held
		defer g.cfg.Log.Warn("the worker is lost: its record is gone, or another's; taking another", "worker", held.Worker)
	}
	g.lease, g.forgotten = nil, true
	g.mu.Unlock()
	return g.save(func(f *Saved) {
		g.forget(f)
		f.Ceiling = min(f.Ceiling, used)
	})
}

// forget makes the file say that there is no worker. What was issued under any
// worker stays below the ceiling: the same one may be won again.
func (g *Generator) forget(f *Saved) {
	ceiling := f.Ceiling
	*f = g.binding
	f.Ceiling = ceiling
}

package snowflake

import (
	"context"
	"errors"
	"fmt"
)

// retire leaves reserved what a restart may need while the registry is away,
// and gives the rest back. The generator holds itself to the new end, in memory
// and in the file, before the record is lowered: so a lost answer changes
// nothing, and it may still issue what lies before that end.
func (g *Generator) retire(ctx context.Context) error {
	t, _ := g.now()
	g.mu.Lock()
	g.ranLocked(g.cfg.Clock())
	l := g.lease
	if l == nil {
		g.mu.Unlock()
		return nil
	}
	if g.still.doubtful() { // another process may have the worker and the file
		g.mu.Unlock()
		return fmt.Errorf("the process stood still, and the registry has not confirmed since that worker %d is still its own", l.Worker)
	}
	used := g.seq.ms + 1 // an old list may have said less since then
	l.ReservedUntil = max(used, min(l.ReservedUntil, max(t, used)+g.cfg.Grace.Milliseconds()))
	next := l.Record
	g.mu.Unlock()
	err := g.save(func(f *Saved) { f.ReservedUntil = min(f.ReservedUntil, next.ReservedUntil) })
	if err != nil || l.unconfirmed {
		return err
	}
	next.Reported = t
	_, err = g.cfg.Registry.Put(ctx, next, l.version)
	if errors.Is(err, ErrConflict) { // a report may have been cut off by the end of Run, and been done
		if lost := g.reconcile(ctx, l); lost != nil {
			return lost
		}
		g.mu.Lock()
		l.ReservedUntil = next.ReservedUntil // what the file says, and the record is to
		g.mu.Unlock()
		_, err = g.cfg.Registry.Put(ctx, next, l.version)
	}
	if err != nil {
		return fmt.Errorf("giving up worker %d: %w", l.Worker, err)
	}
	g.cfg.Notify(WorkerReleased{l.held()})
	return nil
}

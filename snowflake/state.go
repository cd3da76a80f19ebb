package snowflake

import (
	"fmt"
	"time"
)

// State is what a generator has and can do.
type State struct {
	Worker        int64 // -1: none
	ReservedUntil int64
	RegistryAway  bool  // the last report did not reach the registry
	Waiting       int   // requests
	Err           error // why it cannot issue IDs now; nil: it can
}

// State returns the state. Call it now and then: it also notices what no
// request came to notice.
func (g *Generator) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, _, err := g.lookLocked(g.cfg.Clock())
	s := State{Worker: -1, Waiting: g.small.Len() + g.large.Len(), Err: err}
	l := g.lease
	if l == nil {
		if err == nil {
			s.Err = fmt.Errorf("%w: one is being reserved", ErrNoWorker)
		}
		return s
	}
	s.Worker, s.ReservedUntil, s.RegistryAway = l.Worker, l.ReservedUntil, l.failing
	switch {
	case err != nil:
	case g.restingLocked(t):
		s.Err = fmt.Errorf("%w: worker %d rests until %s, where the last run may have been", ErrNoWorker, l.Worker, text(l.floor))
	case t >= l.ceiling+stalled.Milliseconds():
		s.Err = fmt.Errorf("%w: the data folder has not been written for a while", ErrNoWorker)
	}
	if l.failing && !l.expiring && time.Duration(l.ReservedUntil-t)*time.Millisecond <= l.span/2 {
		l.expiring = true
		g.cfg.Notify(WorkerExpiring{l.held()})
	}
	if end := g.cfg.Layout.End(); !g.ending && t > end-ending.Milliseconds() {
		g.ending = true
		g.cfg.Notify(Ending{l.Worker, end})
	}
	return s
}

// Latest is the latest time that an ID of a generator with a right clock can
// have now: the clock's, or that of the last ID if the clock is behind it.
func (g *Generator) Latest() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.cfg.Clock()
	return max(r.Wall, g.guard.at(r, g.seq.ms), g.seq.ms) + g.cfg.MaxClockSkew.Milliseconds()
}

// Worker returns the worker that is held, or -1.
func (g *Generator) Worker() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.workerLocked()
}

func (g *Generator) workerLocked() int64 {
	if g.lease == nil {
		return -1
	}
	return g.lease.Worker
}

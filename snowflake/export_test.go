package snowflake

import (
	"context"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/disk"
)

// The steps of Run, for tests that decide themselves when each is taken.

func (g *Generator) Bind(installation string)         { g.setIdentity(installation) }
func (g *Generator) Keep(ctx context.Context) error   { return g.keepWorker(ctx) }
func (g *Generator) Advance() error                   { return g.raiseCeiling() }
func (g *Generator) Doubt(ctx context.Context)        { g.checkStep(ctx) }
func (g *Generator) Serve() time.Duration             { return g.serve() }
func (g *Generator) Drain()                           { g.drain(nil) }
func (g *Generator) Retire(ctx context.Context) error { return g.shorten(ctx) }

// LookAlive is what the goroutine that notices standstills does.
func (g *Generator) LookAlive() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noteRunningLocked(g.cfg.Clock())
}

// Doubtful reports whether nothing is issued until the registry confirms the worker.
func (g *Generator) Doubtful() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.standstill.doubtful()
}

// Ran makes the generator believe that it has looked alive all the time until r.
func (g *Generator) Ran(r Reading) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.standstill.last = r
}

// SetRandom makes the generator choose by random, so that a test can be
// replayed. Call it before anything else.
func (g *Generator) SetRandom(random func(n int64) int64) {
	g.seq.random, g.cfg.random = random, random
}

// NewBoundedFile is NewFile with the bound of OpenFile on each operation.
func NewBoundedFile(d Disk) (*File, error) { return newFile(d, disk.NewRunner(diskWait).Run) }

// SkipStart makes the generator start without a look at its clock, for tests that
// show that nothing rests on it.
func (g *Generator) SkipStart() { g.worker.started = true }

// Free reports whether no step is under way that holds the lock.
func (g *Generator) Free() bool {
	if !g.mu.TryLock() {
		return false
	}
	g.mu.Unlock()
	return true
}

// Marks are what bounds a generator, for tests that look for its edges.
type Marks struct {
	Last     int64 // time of the last ID
	Doubting bool
	// Of the worker, if one is held.
	Floor, Ceiling int64
	Unconfirmed    bool
}

// Marks returns the marks.
func (g *Generator) Marks() Marks {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := Marks{Last: g.seq.ms, Doubting: g.clock.guard.doubting}
	if w := g.worker.held; w != nil {
		m.Floor, m.Ceiling, m.Unconfirmed = w.floor, w.ceiling, w.Incarnation == ""
	}
	return m
}

// Waits reports whether a request is in the queue.
func (g *Generator) Waits(l *allocator.Later) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for e := g.queue.Front(); e != nil; e = e.Next() {
		if &e.Value.(*waiter).Later == l {
			return true
		}
	}
	return false
}

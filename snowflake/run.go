package snowflake

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	reportEvery  = 3 * time.Second
	keepTimeout  = 5 * time.Second         // of getting a worker: a registry may be making its bucket
	firstTimeout = 1500 * time.Millisecond // of the first: then the file must do
	lastTimeout  = 2 * time.Second         // of giving up the worker
	firstPause   = 50 * time.Millisecond
	lastPause    = time.Second
	advanceEvery = 250 * time.Millisecond
	doubtEvery   = 500 * time.Millisecond
	// startLasts is how long a start may be refused. Who runs for longer without a
	// worker, because the registry was away, serves other things meanwhile, and is not
	// to end for a clock or a name: it gets no worker until that is mended.
	startLasts = time.Minute
)

// Run gets a worker of the installation and keeps it until the context is
// done. Then it refuses the requests that wait, with [ErrClosed], and gives up most of what it has
// reserved. What can be issued without waiting still is, until Close. It must
// be called once.
//
// It ends before, with an error that matches [ErrRefused], if the start is refused:
// because of the clock, or by the registry, within a minute and only as long as no worker was held.
// It also ends with [ErrNotAlone], at any time. From then on it refuses all requests
// with that error.
func (g *Generator) Run(ctx context.Context, installation string) error {
	g.bind(installation)
	running, end := context.WithCancel(ctx)
	defer end()
	alive, endAlive := context.WithCancel(context.WithoutCancel(ctx)) // until Run returns, which a disk that hangs may delay
	var looks sync.WaitGroup
	// It does no I/O: a disk or a network that hangs must not look like a standstill.
	looks.Go(func() { always(alive, lookAlive, func() { g.ran() }) })
	defer looks.Wait()
	defer endAlive()
	var wg sync.WaitGroup
	wg.Go(func() { g.advanceAlways(running) })
	wg.Go(func() { g.serveAlways(running) })
	wg.Go(func() { always(running, doubtEvery, func() { g.doubt(running) }) })
	refused := g.keepAlways(ctx)
	end()
	g.drain(refused)
	wg.Wait()
	if refused != nil {
		return refused
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
	defer cancel()
	if err := g.retire(ctx); err != nil {
		g.cfg.Log.Warn("the worker stays reserved", "error", err)
	}
	return nil
}

// Close ends the issuing for good, after Run. It leaves in the file where the
// next start may begin, so that this one need not rest.
func (g *Generator) Close() error {
	g.mu.Lock()
	l, used, doubtful := g.lease, g.seq.ms+1, g.still.doubtful()
	g.closed = true
	g.mu.Unlock()
	if l == nil || doubtful { // another process may use the file
		return nil
	}
	return g.save(func(f *Saved) { f.Ceiling = min(f.Ceiling, used) })
}

// drain lets nothing wait any more. refused says why the start was refused; nil:
// it was not.
func (g *Generator) drain(refused error) {
	why := ErrClosed
	if refused != nil {
		why = fmt.Errorf("%w: %w", ErrNoWorker, refused)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.draining = true
	g.refuseLocked(why)
}

// bind says what the file must belong to.
func (g *Generator) bind(installation string) {
	g.binding = Saved{
		Installation: installation, Layout: g.cfg.Layout, Place: g.cfg.Place, Node: g.cfg.Node, Worker: -1,
	}
	if s, ok := g.cfg.File.Saved(); ok {
		if _, known := g.own(); !known && s.Worker >= 0 {
			g.cfg.Log.Warn("the data folder's worker is another's: taking one of its own", "node", s.Node, "installation", s.Installation, "place", s.Place)
		}
	}
}

// Verify makes the generator look at its worker's record, because somebody else
// may have it, and returns when it has, or could not, or the context is done.
func (g *Generator) Verify(ctx context.Context) {
	looked := make(chan struct{})
	select {
	case g.verify <- looked:
	case <-ctx.Done():
		return
	}
	select {
	case <-looked:
	case <-ctx.Done():
	}
}

// keepAlways keeps a worker until the context is done, or the start is refused.
func (g *Generator) keepAlways(ctx context.Context) error {
	timeout, pause := firstTimeout, firstPause
	told := false // an episode is logged once
	var asked chan struct{}
	for ctx.Err() == nil {
		if g.confirmed() && g.unproven() == nil { // so the next attempt is a single write, and requests may wait for it
			timeout = firstTimeout
		}
		attempt, cancel := context.WithTimeout(ctx, timeout)
		err := g.keep(attempt)
		cancel()
		timeout = keepTimeout
		if asked != nil {
			close(asked)
			asked = nil
		}
		next := min(reportEvery, g.cfg.Reserve/4)
		switch {
		case err == nil:
			if told {
				g.cfg.Log.Info("the worker is reserved")
			}
			pause, told = firstPause, false
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrRefused) && g.starting() && g.cfg.Clock().Mono-g.started < startLasts:
			return err
		case errors.Is(err, ErrNotAlone):
			return err
		default:
			next = rand.N(pause) + pause/2
			pause = min(2*pause, lastPause)
			if behind, ok := errors.AsType[*BackwardsError](err); ok {
				next = min(next, behind.Offset)
			}
			if !told && !errors.Is(err, ErrConflict) {
				told = true
				g.cfg.Log.Warn("the worker cannot be reserved, or its reservation not extended; trying again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case asked = <-g.verify:
		case <-g.prove:
		case <-time.After(next):
		}
	}
	return nil
}

func (g *Generator) advanceAlways(ctx context.Context) {
	told := false
	for ctx.Err() == nil {
		err := g.advance()
		if err != nil && !told {
			g.cfg.Log.Error("the data folder cannot be written: snowflakes stop at the ceiling that is there", "error", err)
		} else if err == nil && told {
			g.cfg.Log.Info("the data folder can be written again")
		}
		told = err != nil
		select {
		case <-ctx.Done():
		case <-g.advanceNow:
		case <-time.After(advanceEvery):
		}
	}
}

func (g *Generator) serveAlways(ctx context.Context) {
	for ctx.Err() == nil {
		var again <-chan time.Time
		if wait := g.serve(); wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-g.wake:
		case <-again:
		}
	}
}

// always calls f at each tick until the context is done.
func always(ctx context.Context, every time.Duration, f func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

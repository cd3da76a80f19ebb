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
	reportEvery    = 3 * time.Second
	keepTimeout    = 5 * time.Second         // of getting a worker: a registry may be making its bucket
	firstTimeout   = 1500 * time.Millisecond // of the first attempt: then the file must do
	lastTimeout    = 2 * time.Second         // of shortening the reservation
	firstPause     = 50 * time.Millisecond
	lastPause      = time.Second
	raiseEvery     = 250 * time.Millisecond
	checkStepEvery = 500 * time.Millisecond
	// startLasts is how long a start may be refused. A generator that ran for longer without
	// a worker, because the registry was unavailable, serves other requests meanwhile. A wrong
	// name must not end it. It gets no worker until that is fixed.
	startLasts = 60_000 // ms
)

// Run gets a worker of the installation and keeps it until the context is done. Then it
// refuses the requests that wait, with [ErrClosed], and releases most of what it has reserved.
// What can be issued without waiting still is, until Close. Call it once.
//
// It ends earlier, with an error that matches [ErrRefused], if the registry refuses the start. That
// happens only within a minute, and only before a worker was held. It also ends with [ErrNotAlone],
// at any time. From then on no request waits.
func (g *Generator) Run(ctx context.Context, installation string) error {
	g.setIdentity(installation)
	running, end := context.WithCancel(ctx)
	defer end()
	// It also notices standstills, until Run returns, which a disk that hangs may delay. It does no
	// I/O: a disk or a network that hangs must not look like a standstill.
	alive, endAlive := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	serving.Go(func() { loop(alive, g.signals.serve, g.serve) })
	defer serving.Wait()
	defer endAlive()
	var wg sync.WaitGroup
	wg.Go(func() { g.raiseAlways(running) })
	wg.Go(func() { loop(running, nil, func() time.Duration { g.checkStep(running); return checkStepEvery }) })
	refused := g.keepAlways(ctx)
	end()
	g.drain(refused)
	wg.Wait()
	if refused != nil {
		return refused
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
	defer cancel()
	if err := g.shorten(ctx); err != nil {
		g.cfg.Log.Warn("the worker stays reserved", "error", err)
	}
	return nil
}

// Close stops issuing for good, after Run. It saves in the file where the next start may
// begin, so that the next start need not rest.
func (g *Generator) Close() error {
	g.mu.Lock()
	s := &g.worker.saved
	g.closed = true
	unused := g.worker.held == nil || g.standstill.doubtful() // another process may use the file
	if !unused {
		s.Ceiling = min(s.Ceiling, g.seq.ms+1)
	}
	g.mu.Unlock()
	if unused {
		return nil
	}
	return g.write()
}

// drain refuses the requests that wait, and lets no request wait any more. refused says why
// Run ends; nil: its context is done.
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

// setIdentity finds out what the file says, which counts only if it is this generator's.
func (g *Generator) setIdentity(installation string) {
	want := Saved{Installation: installation, Layout: g.cfg.Layout, Place: g.cfg.Place, Node: g.cfg.Node}
	s, _ := g.cfg.File.Saved()
	if want != (Saved{Installation: s.Installation, Layout: s.Layout, Place: s.Place, Node: s.Node}) {
		if s.Incarnation != "" || s.Pending != "" {
			g.cfg.Log.Warn("the data folder has the worker of another generator; taking another worker", "node", s.Node,
				"installation", s.Installation, "place", s.Place)
		}
		want.forget()
		s = want
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.worker.saved = s
	g.standstill = standstill{last: g.cfg.Clock()} // before, nothing had to read the clock
}

// Verify makes the generator check its worker's record, because another generator may have
// taken it. It returns after the check, whether that succeeded or not, or when the context is done.
func (g *Generator) Verify(ctx context.Context) {
	checked := make(chan struct{})
	select {
	case g.signals.verify <- checked:
	case <-ctx.Done():
		return
	}
	select {
	case <-checked:
	case <-ctx.Done():
	}
}

// keepAlways keeps a worker until the context is done. It returns an error if the generator must
// end.
func (g *Generator) keepAlways(ctx context.Context) error {
	timeout, pause := firstTimeout, firstPause
	logged := false // a failure is logged once, until an attempt succeeds
	var checked chan struct{}
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, timeout)
		err := g.keepWorker(attempt)
		cancel()
		if checked != nil {
			close(checked)
			checked = nil
		}
		next := min(reportEvery, g.cfg.Reserve/4)
		switch {
		case err == nil:
			if logged {
				g.cfg.Log.Info("the worker is reserved")
			}
			timeout, pause, logged = firstTimeout, firstPause, false
		case ctx.Err() != nil:
			return nil
		case g.endsRun(err):
			return err
		default:
			next = rand.N(pause) + pause/2
			timeout, pause = keepTimeout, min(2*pause, lastPause)
			if behind, ok := errors.AsType[*BackwardsError](err); ok {
				next = min(next, behind.Offset)
			}
			if !logged && !errors.Is(err, ErrConflict) {
				logged = true
				g.cfg.Log.Warn("the worker could not be reserved, or its reservation not extended; trying again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case checked = <-g.signals.verify:
		case <-g.signals.keep:
		case <-time.After(next):
		}
	}
	return nil
}

// endsRun reports whether an error of keepWorker ends Run.
func (g *Generator) endsRun(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Is(err, ErrNotAlone) ||
		errors.Is(err, ErrRefused) && !g.worker.started && g.cfg.Clock().Mono-g.started < startLasts
}

func (g *Generator) raiseAlways(ctx context.Context) {
	logged := false
	loop(ctx, g.signals.raise, func() time.Duration {
		err := g.raiseCeiling()
		if err != nil && !logged {
			g.cfg.Log.Error("the data folder cannot be written: snowflakes stop when the time that it reserves is over", "error",
				err)
		} else if err == nil && logged {
			g.cfg.Log.Info("the data folder can be written again")
		}
		logged = err != nil
		return raiseEvery
	})
}

// loop calls f again and again until the context is done: after the time that f returned, or when
// it is woken.
func loop(ctx context.Context, woken <-chan struct{}, f func() time.Duration) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-woken:
		case <-time.After(f()):
		}
	}
}

package snowflake

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// firstReserve and the time since the start bound what is reserved, so that
	// one that crashes again and again does not use up the workers.
	firstReserve = time.Minute
	// listed is how many holders an error lists.
	listed = 8
)

func (l *lease) held() Held { return Held{l.Worker, l.ReservedUntil} }

// keep takes one step to have a worker and to hold it: it acquires one, or
// extends the reservation of the one that there is. It is for one goroutine.
func (g *Generator) keep(ctx context.Context) error {
	standstills, starting := g.ran(), g.starting()
	err := g.intruder()
	if err != nil {
		return err
	}
	if g.confirmed() {
		err = g.report(ctx, g.lease) // nobody else changes which lease there is
	} else {
		err = g.acquire(ctx)
	}
	g.mu.Lock()
	over, long := g.provenLocked(standstills, err), g.still.long
	switch {
	case g.lease != nil:
		g.noWorker = nil
		g.lease.failing = err != nil
	case !errors.Is(err, ErrConflict): // which passes
		g.noWorker = err
	}
	g.mu.Unlock()
	signal(g.wake)
	if over && !starting { // before Run nothing reads the clock often enough
		g.cfg.Log.Warn("the process or its machine stood still, or its clock was set forward; the registry has confirmed the worker since", "ms", long)
	}
	return err
}

// confirmed reports whether there is a worker that the registry knows of.
func (g *Generator) confirmed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lease != nil && !g.lease.unconfirmed
}

// now returns the time that may be reserved and issued.
func (g *Generator) now() (t int64, r Reading) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r = g.cfg.Clock()
	return g.guard.at(r, g.seq.ms), r
}

// until is the end of a reservation that is made at the time t, and of which
// there is already some.
func (g *Generator) until(reserved, t int64, r Reading) int64 {
	ahead := min(g.cfg.Reserve, max(firstReserve, r.Mono-g.started))
	return min(g.cfg.Layout.End(), max(reserved, t+ahead.Milliseconds()))
}

func (g *Generator) choice() Choice {
	return Choice{g.cfg.FirstWorker, g.cfg.LastWorker, g.cfg.Claimed}
}

// acquire gets a worker: the own one of before, else one whose reservation is
// over, else one that nobody ever had.
func (g *Generator) acquire(ctx context.Context) error {
	entries, err := g.cfg.Registry.List(ctx)
	saved, known := g.own()
	if err != nil {
		err = fmt.Errorf("asking the registry of workers: %w", err)
		if !known || errors.Is(err, ErrRefused) {
			return err
		}
		if wrong := g.checkRecorded(saved.recorded()); wrong != nil {
			return wrong
		}
		g.resume(saved)
		return err
	}
	recorded := saved.recorded()
	e, ok := find(entries, saved)
	ok = ok && known && !g.cfg.Held(e.Worker) // by another, with a clone of the file
	if ok {
		recorded = max(recorded, e.Reported)
	}
	if err := g.checkRecorded(recorded); err != nil {
		return err
	}
	t, _ := g.now()
	if known {
		switch {
		case ok && g.inRange(e.Worker):
			return g.claim(ctx, e, saved)
		case ok: // another worker is wanted now
			return g.leave(ctx, e)
		}
		if err := g.lose(Held{saved.Worker, saved.ReservedUntil}, t); err != nil {
			return err
		}
	}
	if !g.cfg.Settled() {
		return errors.New("it is not known yet which workers the other generators hold")
	}
	var free []Entry
	taken := int64(0)
	for _, e := range entries {
		if g.inRange(e.Worker) {
			taken++
		}
		if e.ReservedUntil <= t && g.choice().Allows(e.Worker) {
			free = append(free, e)
		}
	}
	if len(free) == 0 && taken > g.cfg.LastWorker-g.cfg.FirstWorker {
		return g.allTaken(entries)
	}
	if err := g.compare(ctx); err != nil {
		return err
	}
	free = slices.DeleteFunc(free, func(e Entry) bool { return g.cfg.Claimed(e.Worker) }) // meanwhile
	if len(free) > 0 {
		e := free[g.random(int64(len(free)))] // many may start at once, and not all should want the same
		e.Acquired, e.Incarnation = t, ""
		return g.claim(ctx, e, Saved{Worker: e.Worker, Ceiling: e.ReservedUntil})
	}
	err = g.add(ctx)
	if errors.Is(err, ErrFull) { // others claim the rest
		return g.allTaken(entries)
	}
	return err
}

// find returns the record that this generator wrote before it was started.
func find(entries []Entry, saved Saved) (Entry, bool) {
	for _, e := range entries {
		if e.Incarnation != "" && (e.Incarnation == saved.Incarnation || e.Incarnation == saved.Pending) {
			return e, true
		}
	}
	return Entry{}, false
}

func (g *Generator) inRange(worker int64) bool {
	return g.cfg.FirstWorker <= worker && worker <= g.cfg.LastWorker
}

// resume issues from the file alone while the registry is away, as long as the
// reservation lasts.
func (g *Generator) resume(s Saved) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.guard.at(g.cfg.Clock(), g.seq.ms)
	switch {
	case !g.inRange(s.Worker) || g.cfg.Held(s.Worker): // by another, with a clone of the file
		g.lease = nil
		return
	case g.lease != nil || t >= s.ReservedUntil || !g.cfg.Settled():
		return
	}
	g.installLocked(&lease{
		Record: Record{Worker: s.Worker, ReservedUntil: s.ReservedUntil},
		floor:  s.Ceiling, ceiling: s.Ceiling,
		span: time.Duration(s.ReservedUntil-t) * time.Millisecond, unconfirmed: true,
	})
}

// claim writes a new incarnation of this generator into a record that it may
// have: its own, of which it knows what is in s, or one whose reservation is
// over. What it is about to do is in the file before, so that a start after a crash
// knows it.
func (g *Generator) claim(ctx context.Context, e Entry, s Saved) error {
	t, r := g.now()
	if g.trying.Worker != e.Worker || g.trying.Incarnation == "" { // else a write without an answer may still happen
		g.trying = Record{Worker: e.Worker, Incarnation: rand.Text()}
	}
	next := Record{
		Worker: e.Worker, Node: g.cfg.Node, Incarnation: g.trying.Incarnation,
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
	return g.confirm(Entry{next, version}, t)
}

// add reserves a worker that nobody ever had.
func (g *Generator) add(ctx context.Context) error {
	t, r := g.now()
	next := Record{
		Node: g.cfg.Node, Incarnation: rand.Text(), ReservedUntil: g.until(0, t, r), Acquired: t, Reported: t,
	}
	if err := g.save(func(f *Saved) { g.forget(f); f.Pending = next.Incarnation }); err != nil {
		return err
	}
	e, err := g.cfg.Registry.Add(ctx, next, g.choice())
	if err != nil {
		return fmt.Errorf("reserving a worker: %w", err)
	}
	return g.confirm(e, t)
}

// confirm takes in that the registry has the record e of this generator, since
// the time t.
func (g *Generator) confirm(e Entry, t int64) error {
	var floor int64
	err := g.save(func(f *Saved) {
		f.Worker, f.Incarnation, f.Pending, f.ReservedUntil = e.Worker, e.Incarnation, "", e.ReservedUntil
		floor = f.Ceiling
	})
	if err != nil {
		return err
	}
	g.trying = Record{}
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lease
	if l == nil {
		l = &lease{floor: floor, ceiling: floor}
		g.installLocked(l)
	}
	l.Record, l.version, l.unconfirmed = e.Record, e.Version, false
	g.extendedLocked(l, t)
	g.cfg.Notify(WorkerAcquired{l.held()})
	if g.refused {
		g.refused = false
		g.cfg.Notify(Recovered{l.Worker, EpisodeSkewed})
	}
	if g.lost != nil {
		g.cfg.Notify(Recovered{g.lost.Worker, EpisodeLost})
		g.lost = nil
	}
	return nil
}

// installLocked begins to issue from a lease.
func (g *Generator) installLocked(l *lease) {
	g.lease, g.leased = l, true
	g.seq.skip(l.floor - 1) // the floor is above what was issued before, under whatever worker
	signal(g.advanceNow)
}

// extendedLocked notes that the registry confirmed the lease at the time t.
func (g *Generator) extendedLocked(l *lease, t int64) {
	l.span = time.Duration(l.ReservedUntil-t) * time.Millisecond
	if l.expiring {
		l.expiring = false
		g.cfg.Notify(Recovered{l.Worker, EpisodeExpiring})
	}
}

// report extends the reservation, and thereby verifies that the record is still
// this generator's.
func (g *Generator) report(ctx context.Context, l *lease) error {
	t, r := g.now()
	next := l.Record
	next.ReservedUntil, next.Reported = g.until(l.ReservedUntil, t, r), t
	version, err := g.cfg.Registry.Put(ctx, next, l.version)
	if errors.Is(err, ErrConflict) {
		if lost := g.reconcile(ctx, l); lost != nil {
			return lost
		}
	}
	if err != nil { // a conflict with an own write that had no answer: the next try will do
		return fmt.Errorf("extending the reservation of worker %d: %w", l.Worker, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	l.Record, l.version = next, version
	g.extendedLocked(l, t)
	return nil
}

// allTaken is the error of a generator for which no worker is left.
func (g *Generator) allTaken(entries []Entry) error {
	var holders []string
	slices.SortFunc(entries, func(x, y Entry) int { return cmp.Compare(x.ReservedUntil, y.ReservedUntil) })
	for _, e := range entries {
		if !g.inRange(e.Worker) {
			continue
		}
		if len(holders) == listed {
			holders = append(holders, "…")
			break
		}
		holders = append(holders, fmt.Sprintf("%d by %s until %s", e.Worker, e.Node, text(e.ReservedUntil)))
	}
	return fmt.Errorf("all workers from %d to %d are held: %s; one is taken over when its reservation ends",
		g.cfg.FirstWorker, g.cfg.LastWorker, strings.Join(holders, ", "))
}

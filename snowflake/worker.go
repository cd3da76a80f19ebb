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
	contested       []int64       // the worker that the last attempt wanted and whose holder wrote first, if any
	comparedUntil   time.Duration // Mono until which the clock need not be compared with the peers' clocks
	agreed          bool          // when it was compared last, there were peers that agreed
	refusalReported bool          // that the clock keeps the generator from taking a worker
}

// heldWorker is a worker and which of its times may be issued.
type heldWorker struct {
	Record
	version  uint64
	floor    int64         // the earliest time that may be issued
	ceiling  int64         // on disk: above all that is issued
	span     time.Duration // how far ahead it was reserved when the registry last confirmed it
	failing  error         // why the registry did not confirm it the last time; nil: it did
	expiring bool          // reported
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
	confirmed := held != nil && !held.unconfirmed
	g.mu.Unlock()
	switch {
	case errors.Is(err, ErrNotAlone):
		return err
	case confirmed:
		err = g.extend(ctx, held)
	default:
		err = g.acquire(ctx)
	}
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

// acquire gets a worker: the one that it had before, else one with an ended reservation, else one that was never held.
func (g *Generator) acquire(ctx context.Context) error {
	if err := g.compareClock(ctx); err != nil {
		return err
	}
	entries, err := g.cfg.Registry.List(ctx)
	saved, known := g.ownSaved()
	recorded := saved.recorded()
	if err != nil {
		err = fmt.Errorf("asking the registry of workers: %w", err)
		if !known || errors.Is(err, ErrRefused) {
			return err
		}
		if _, wrong := g.checkRecorded(recorded); wrong != nil {
			return wrong
		}
		g.holdFromFile(saved)
		return err
	}
	own, ok := findOwn(entries, saved)
	ok = ok && known && !g.cfg.HeldByPeer(own.Worker) // a peer that holds it has a clone of the file
	if ok {
		recorded = max(recorded, own.Reported)
	}
	abandon, err := g.checkRecorded(recorded)
	switch {
	case abandon && ok:
		if err := g.abandon(own); err != nil {
			return err
		}
	case err != nil:
		return err
	case ok && g.inRange(own.Worker):
		return g.takeOver(ctx, own, saved)
	case ok: // the configuration wants another worker now
		return g.releaseUnwanted(ctx, own)
	case known:
		t, _ := g.now()
		if err := g.lose(Held{saved.Worker, saved.ReservedUntil}, min(saved.Ceiling, saved.ReservedUntil), t); err != nil {
			return err
		}
	}
	return g.acquireOther(ctx, entries)
}

// acquireOther gets a worker that is not this generator's own.
func (g *Generator) acquireOther(ctx context.Context, entries []Entry) error {
	if !g.cfg.PeersKnown() {
		return errors.New("it is not known yet which workers the other generators hold")
	}
	t, _ := g.now()
	choice := Choice{g.cfg.FirstWorker, g.cfg.LastWorker, g.cfg.HeldByPeerLately}
	var free []Entry
	taken := int64(0)
	for _, e := range entries {
		if g.inRange(e.Worker) {
			taken++
		}
		if e.ReservedUntil <= t && choice.Allows(e.Worker) {
			free = append(free, e)
		}
	}
	if len(free) == 0 && taken > g.cfg.LastWorker-g.cfg.FirstWorker {
		return g.allTaken(entries)
	}
	// A clock that is ahead takes each reservation for ended. A holder that writes before each attempt
	// would starve this generator, if there is another worker.
	others := slices.DeleteFunc(slices.Clone(free),
		func(e Entry) bool { return slices.Contains(g.keeper.contested, e.Worker) })
	if len(others) > 0 || taken <= g.cfg.LastWorker-g.cfg.FirstWorker {
		free = others
	}
	g.keeper.contested = nil
	if len(free) > 0 {
		e := free[g.seq.random(int64(len(free)))] // many may start at once, and should not all want the same one
		e.Acquired, e.Incarnation = t, ""
		err := g.takeOver(ctx, e, Saved{Worker: e.Worker, Ceiling: e.ReservedUntil})
		if errors.Is(err, ErrConflict) {
			g.keeper.contested = []int64{e.Worker}
		}
		return err
	}
	err := g.add(ctx, choice)
	if errors.Is(err, ErrFull) { // peers hold the rest
		return g.allTaken(entries)
	}
	return err
}

// findOwn returns the record that this generator wrote before it was started.
func findOwn(entries []Entry, saved Saved) (Entry, bool) {
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

// holdFromFile holds the worker that the file names while the registry is unavailable, for
// as long as the reservation lasts.
func (g *Generator) holdFromFile(s Saved) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.timeLocked(g.cfg.Clock())
	switch {
	case !g.inRange(s.Worker) || g.cfg.HeldByPeer(s.Worker): // a peer that holds it has a clone of the file
		g.worker.held = nil
		return
	case g.worker.held != nil || t >= s.ReservedUntil || !g.cfg.PeersKnown():
		return
	}
	g.holdLocked(&heldWorker{
		Record: Record{Worker: s.Worker, ReservedUntil: s.ReservedUntil},
		floor:  s.Ceiling, ceiling: s.Ceiling, span: millis(s.ReservedUntil - t), unconfirmed: true,
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
	return g.hold(Entry{Record: next, Version: version}, e.Reported, t)
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
	return g.hold(e, 0, t)
}

// hold holds a worker from now on, because the registry has this generator's record e since the time t.
// after is the last report in the record that e replaced; 0: there was none.
func (g *Generator) hold(e Entry, after, t int64) error {
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
	g.extendedLocked(w, t)
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

// extendedLocked notes that the registry confirmed the worker at the time t.
func (g *Generator) extendedLocked(w *heldWorker, t int64) {
	w.span = millis(w.ReservedUntil - t)
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
	g.extendedLocked(w, t)
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
	return fmt.Errorf("all workers from %d to %d are held: %s; a worker can be taken over when its reservation ends",
		g.cfg.FirstWorker, g.cfg.LastWorker, strings.Join(holders, ", "))
}

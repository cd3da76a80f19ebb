package generator

import (
	"context"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus/events"
)

const (
	// floorsWait is how long a generator that was cut off waits for the store to say
	// which max_id operators have set. Then it serves again.
	floorsWait  = time.Second
	floorsTry   = 20 * time.Millisecond // pause while requests wait
	floorsAgain = time.Second           // pause before it asks again
	// floorsPatience is how long the store may take when no request waits any more. The store
	// may have a million tags, and be far away.
	floorsPatience = 30 * time.Second
)

// floors is whether the generator knows which max_id operators have set. A change of max_id
// does not wait for a generator that is cut off. So when it returns, it must ask before it
// hands out IDs of tags from memory. It asks the store, because the store has every such
// max_id before the operator gets an answer. Its methods are safe for concurrent use.
type floors struct {
	gate                 // shut while requests wait for the answer
	wanted chan struct{} // the store must be asked; holds one

	asking  sync.Mutex // guards what follows
	round   uint64     // number of the last question
	about   time.Time  // the last heartbeat before the pause that the last question is about
	unknown bool       // the last question was not answered
	cancel  context.CancelFunc
}

func newFloors() *floors { return &floors{wanted: make(chan struct{}, 1)} }

// begin makes requests wait for an answer, once for each pause. before is the last heartbeat
// before the pause. With insist it asks again if the last question was not answered.
func (f *floors) begin(before time.Time, insist bool) {
	f.asking.Lock()
	defer f.asking.Unlock()
	if f.about.Equal(before) && (f.isShut.Load() || !f.unknown || !insist) {
		return
	}
	f.about = before
	f.round++
	if f.cancel != nil {
		f.cancel() // that question began before the pause was over
	}
	f.shut()
	signal(f.wanted)
}

// ask asks the store by apply, and then opens the gate. current is false if another pause has
// begun since: then the gate stays shut for the next question.
func (f *floors) ask(ctx context.Context, apply func(context.Context) error) (current bool, err error) {
	f.asking.Lock()
	round, patience := f.round, floorsWait
	if !f.isShut.Load() {
		patience = floorsPatience
	}
	ctx, f.cancel = context.WithTimeout(ctx, patience)
	defer f.cancel()
	f.asking.Unlock()
	err = apply(ctx)
	f.asking.Lock()
	defer f.asking.Unlock()
	if round != f.round {
		return false, err
	}
	f.unknown = err != nil
	f.open(time.Now())
	return true, err
}

// maybeStale reports whether a request for IDs of a tag must wait until the generator knows
// what operators have set. It looks for an unnoticed pause first: see pulse.returned.
func (g *Generator) maybeStale(a Answer) bool {
	// A request that came before the process stood still was sent before what it missed meanwhile.
	now := a.begun
	if a.Transport == NATS {
		if before, silence := g.group.pulse.silence(now); silence > silentAfter {
			g.afterPause(before, true) // a request over NATS shows that NATS delivers again
		}
	} else if before, still := g.group.pulse.stoodStill(now); still {
		g.afterPause(before, false) // HTTP is served also without NATS
	}
	return g.floors.isShut.Load()
}

// afterPause asks what operators have set, because there was a pause. heard: NATS delivers again.
func (g *Generator) afterPause(before time.Time, heard bool) {
	if g.phase.opened.Load() { // otherwise it has nothing in memory
		g.floors.begin(before, heard)
	}
}

// askFloors asks after each pause, until the store has answered.
func (g *Generator) askFloors(ctx context.Context) {
	defer func() { g.floors.end(time.Now()) }()
	stale := false // the alert was published
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.floors.wanted:
		}
		for ctx.Err() == nil {
			current, err := g.floors.ask(ctx, g.applyFloors)
			if current && err == nil {
				break
			}
			if current && !stale && ctx.Err() == nil {
				stale = true
				g.log.Warn("this generator was cut off, and the store does not say which max_id operators have set since: "+
					"it may hand out IDs below", "error", err)
				g.publishEvent("node.stale", g.cfg.Node, events.Stale{Node: g.cfg.Node, Error: err.Error()})
			}
			select {
			case <-ctx.Done():
			case <-g.floors.wanted:
			case <-time.After(floorsAgain):
			}
		}
		if stale && ctx.Err() == nil {
			stale = false
			g.log.Info("this generator knows again which max_id operators have set")
			g.publishEvent("node.recovered", g.cfg.Node, events.Recovered{Node: g.cfg.Node, Episode: "stale"})
		}
	}
}

// applyFloors applies the floors, and tries again until the context is done: NATS has often dropped the connection of a
// generator that stood still, and needs a moment.
func (g *Generator) applyFloors(ctx context.Context) error {
	var why error
	for {
		err := g.tryFloors(ctx)
		if why == nil || ctx.Err() == nil { // else err only says that the time is over
			why = err
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return why
		}
		select {
		case <-ctx.Done():
		case <-time.After(floorsTry):
		}
	}
}

// tryFloors brings all records up to date, and so drops the IDs in memory below the max_id that operators have set. It
// announces this generator first, so that changes wait for it from then on.
func (g *Generator) tryFloors(ctx context.Context) error {
	if !g.cfg.Conn.IsConnected() {
		return errCutOff
	}
	if err := g.announce(ctx); err != nil {
		return err
	}
	return g.cfg.Records.Sync(ctx)
}

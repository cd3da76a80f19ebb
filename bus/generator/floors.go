package generator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

const (
	// floorsWait is how long a generator that was cut off waits for the store to say
	// which max_id operators have set; then it goes on.
	floorsWait  = time.Second
	floorsAgain = time.Second // pause before it asks again
	// floorsPatience is how long the store may take when no request waits any more: it
	// may have a million tags, and be far away.
	floorsPatience = 30 * time.Second
)

// floors is whether the generator knows which max_id operators have set. A change of max_id
// does not wait for a generator that is cut off. So when it returns, it must ask before it
// hands out IDs of tags from memory. It asks the store, because the store has every such
// max_id before the operator gets an answer. Its methods are safe for concurrent use.
type floors struct {
	lasts   atomic.Bool // requests wait; known without mu
	waiting atomic.Int64
	wanted  chan struct{} // the store must be asked; holds one

	mu      sync.Mutex
	known   chan struct{} // closed when requests go on; nil: none wait
	round   uint64        // of questions
	about   time.Time     // the last beat before the pause that the last question is about
	unknown bool          // the last question was not answered
	cancel  context.CancelFunc
	closed  bool
}

func newFloors() *floors { return &floors{wanted: make(chan struct{}, 1)} }

// begin makes requests wait for an answer, once for each pause. before is the last beat
// before the pause. With insist it asks again if the last question was not answered.
func (f *floors) begin(before time.Time, insist bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.about.Equal(before) && (f.known != nil || !f.unknown || !insist) {
		return
	}
	f.about = before
	f.round++
	if f.cancel != nil {
		f.cancel() // that question began before the pause was over
	}
	if f.known == nil {
		f.known = make(chan struct{})
		f.lasts.Store(true)
	}
	select {
	case f.wanted <- struct{}{}:
	default:
	}
}

// ask begins a question, and returns its number.
func (f *floors) ask(ctx context.Context) (_ context.Context, round uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	patience := floorsWait
	if f.known == nil {
		patience = floorsPatience
	}
	ctx, f.cancel = context.WithTimeout(ctx, patience)
	return ctx, f.round
}

// end lets requests go on unless there was another pause since the question.
func (f *floors) end(round uint64, answered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancel()
	if round == f.round {
		f.unknown = !answered
		f.releaseLocked()
	}
}

func (f *floors) releaseLocked() {
	if f.known != nil {
		f.lasts.Store(false)
		close(f.known)
		f.known = nil
	}
}

// close lets all requests go on for good.
func (f *floors) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.releaseLocked()
}

// over returns a channel that is closed when requests go on; nil: none wait.
func (f *floors) over() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known
}

// behind reports whether a request for IDs of a tag must wait until the generator knows
// what operators have set. It looks for an unnoticed pause first: see pulse.returned.
func (g *Generator) behind(a Answer) bool {
	// A request that came before the process stood still was sent before what it missed meanwhile.
	now := a.begun
	if a.Face == NATS {
		if before, silent := g.presence.pulse.silent(now); silent {
			g.paused(before, true) // a request over NATS shows that it is back
		}
	} else if before, still := g.presence.pulse.stoodStill(now); still {
		g.paused(before, false) // it serves while it is cut off
	}
	return g.floors.lasts.Load()
}

// paused asks what operators have set, because there was a pause; heard: NATS is back.
func (g *Generator) paused(before time.Time, heard bool) {
	if g.opened.Load() { // otherwise it has nothing in memory
		g.floors.begin(before, heard)
	}
}

// keepFloors asks after each pause, until the store has answered.
func (g *Generator) keepFloors(ctx context.Context) {
	defer g.floors.close()
	reported := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.floors.wanted:
		}
		for ctx.Err() == nil {
			question, round := g.floors.ask(ctx)
			err := g.learnFloors(question)
			g.floors.end(round, err == nil)
			if err == nil {
				break
			}
			if !reported && ctx.Err() == nil && g.floors.current(round) {
				reported = true
				g.log.Warn("this generator was cut off, and the store does not say which max_id operators have set since: it may hand out IDs below", "error", err)
				g.publish(newEvent("node.stale", g.cfg.Node, g.cfg.Node, bus.StaleEvent{Node: g.cfg.Node, Error: err.Error()}))
			}
			select {
			case <-ctx.Done():
			case <-g.floors.wanted:
			case <-time.After(floorsAgain):
			}
		}
		if reported && ctx.Err() == nil {
			reported = false
			g.log.Info("this generator knows again which max_id operators have set")
			g.publish(newEvent("node.recovered", g.cfg.Node, g.cfg.Node, bus.RecoveredEvent{Node: g.cfg.Node, Episode: "stale"}))
		}
	}
}

// current reports whether there was no other pause since the question.
func (f *floors) current(round uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.round == round
}

// learnFloors drops the IDs in memory below the max_id that operators have set. It greets the
// other generators first, so that changes wait for this one from then on.
func (g *Generator) learnFloors(ctx context.Context) error {
	if !g.cfg.Conn.IsConnected() {
		return errCutOff
	}
	if err := g.greet(ctx); err != nil {
		return err
	}
	return g.cfg.Store.Floors(ctx, g.alloc.Raise)
}

// behindRequest is a request for IDs of a tag that waits until the generator knows what
// operators have set.
type behindRequest struct {
	g   *Generator
	tag string
	n   int64
}

// waitForFloors returns a waiter for n IDs of tag.
func (g *Generator) waitForFloors(tag string, n int64) (waiter, error) {
	if g.floors.waiting.Add(1) > g.cfg.MaxWaiting {
		g.floors.waiting.Add(-1)
		return nil, allocator.ErrOverloaded
	}
	return behindRequest{g, tag, n}, nil
}

// Wait implements waiter.
func (r behindRequest) Wait(ctx context.Context) ([]bus.Range, error) {
	defer r.g.floors.waiting.Add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, r.g.cfg.MaxWait, allocator.ErrTimedOut) // for both waits together
	defer cancel()
	if over := r.g.floors.over(); over != nil {
		select {
		case <-over:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if !r.g.serving.Load() {
		return nil, allocator.ErrClosed // the generator was refused while this waited
	}
	return r.g.alloc.Take(ctx, r.tag, r.n)
}

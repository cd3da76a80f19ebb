package generator

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/outbox"
)

const (
	// lostAfter is how long a peer must be silent, while this generator hears NATS without a pause,
	// before that raises an alert.
	lostAfter = 5 * heartbeatEvery
	// lostFor is how long a lost peer is remembered at least, because it may be cut off and still
	// answer callers. A peer without a worker is over after it.
	lostFor = time.Hour
	// learnFor is how long a generator that begins to hear NATS learns from its peers which others
	// are lost. After that it knows it itself.
	learnFor = 2 * lostAfter
	// maxLost is how many silent peers are remembered, maxLostShown how many the state and the
	// heartbeats list.
	maxLost, maxLostShown = 100, 20
)

// loss is what was said of a silent peer. Each generator that hears NATS publishes an alert about
// each, and its end. Their message IDs come from the last heartbeat, so the stream keeps one of
// each. A generator that was not there, or was cut off, learns from heartbeats what the others have
// published.
type loss int

const (
	lossUnsaid    loss = iota
	lossDeclared       // it was silent for lostAfter, so operators see it, and the stream may have the alert
	lossPublished      // the stream has it
)

// lostNode is what a heartbeat says of a lost node.
type lostNode struct {
	heartbeat       // the last one; a part of it
	SilentMS  int64 `json:"silent_ms"`           // how long ago it came
	Published bool  `json:"published,omitempty"` // the stream has the alert
}

func (p *peer) lostNode(now time.Time) lostNode {
	b := heartbeat{Node: p.Node, ID: p.ID, Number: p.Number, Worker: p.Worker, ReservedUntil: p.ReservedUntil,
		UnixMS: p.UnixMS}
	return lostNode{b, now.Sub(p.heard).Milliseconds(), p.loss == lossPublished}
}

// until is when what a peer has reserved is over. It is by this generator's clock: the peer's may
// be wrong.
func (p *peer) until() time.Time {
	if p.Worker != nil && p.ReservedUntil > 0 && p.UnixMS > 0 {
		return p.heard.Add(millis(p.ReservedUntil - p.UnixMS))
	}
	return p.heard.Add(lostFor)
}

// millis is a duration that a peer sent.
func millis(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// isLost reports whether operators must see the peer as lost now.
func (p *peer) isLost(now time.Time) bool { return p.loss != lossUnsaid && now.Before(p.until()) }

// endLocked notes that the loss of a peer is over. Its alert needs an end: an attempt without an
// answer may have succeeded.
func (g *group) endLocked(p *peer) {
	if p.loss != lossUnsaid {
		g.ends[p.Node] = *p
	}
	p.loss = lossUnsaid
}

// lookLocked notes which peers are gone, because another run of the node was heard later, and which
// losses are over. It forgets peers when nothing depends on them any more, and the oldest ones if
// many are silent.
func (g *group) lookLocked(now time.Time) {
	last := make(map[string]*peer, len(g.peers)) // by node
	later := func(x, y *peer) int { return cmp.Or(x.heard.Compare(y.heard), strings.Compare(x.ID, y.ID)) }
	for _, p := range g.peers {
		if q := last[p.Node]; q == nil || later(p, q) > 0 {
			last[p.Node] = p
		}
	}
	var silent []*peer
	for run, p := range g.peers {
		if p.here(now) {
			continue
		}
		p.Gone = p.Gone || last[p.Node] != p
		over := p.Gone || !now.Before(p.until())
		if over {
			g.endLocked(p)
		}
		switch age := now.Sub(p.heard); {
		case over && age >= lostFor, last[p.Node] != p && age >= claimExpires:
			delete(g.peers, run)
		case !p.Gone && p.loss == lossUnsaid: // else the end of the alert must follow
			silent = append(silent, p)
		}
	}
	slices.SortFunc(silent, later)
	for _, p := range silent[:max(len(silent)-maxLost, 0)] {
		delete(g.peers, p.ID)
	}
}

// forget notes that a silent node is gone for good. It reports whether there was one.
func (g *group) forget(now time.Time, node string) (was bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.peers {
		if p.Node == node && !p.Gone && !p.here(now) {
			g.endLocked(p)
			p.Gone, was = true, true
		}
	}
	return was
}

// declare returns the peers that are lost now and were not before. Only silence counts while this
// generator has heard NATS without a pause, since steady. Else one that was cut off, frozen or
// starved would declare its healthy peers lost. own is this generator's node, which another run may
// have had.
func (g *group) declare(now, steady time.Time, own string) (lost []peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lookLocked(now)
	for _, p := range g.peers {
		if p.loss == lossUnsaid && !p.Gone && now.Before(p.until()) && p.Node != own &&
			now.Sub(p.heard) >= lostAfter && now.Sub(steady) >= lostAfter {
			p.loss = lossDeclared
			lost = append(lost, *p)
		}
	}
	return lost
}

// next returns a peer of whose loss the stream may lack the alert, or its end; ok is false if there
// is none. here: this generator hears NATS.
func (g *group) next(now time.Time, here bool) (p peer, end, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.ends {
		return p, true, true
	}
	for _, p := range g.peers {
		if here && p.isLost(now) && p.loss == lossDeclared {
			return *p, false, true
		}
	}
	return peer{}, false, false
}

// published notes that the stream has what next returned.
func (g *group) published(was peer, end bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	is := func(p peer) bool { return p.ID == was.ID && p.Number == was.Number } // else it was lost again
	if end && is(g.ends[was.Node]) {
		delete(g.ends, was.Node)
	}
	if p := g.peers[was.ID]; !end && p != nil && is(*p) && p.loss == lossDeclared {
		p.loss = lossPublished
	}
}

// learn takes in which nodes a peer reports as lost. A generator that has just begun to hear NATS,
// at the time steady, knows less than the peer. own is this generator's node. It returns the nodes
// of which the peer did not hear that they are gone: it was cut off then, and nothing else would
// end its alert.
func (g *group) learn(now, steady time.Time, from heartbeat, own string) (gone []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isRivalLocked(from) {
		return nil
	}
	here, silent := map[string]bool{own: true}, make(map[string]bool)
	for _, p := range g.peers {
		here[p.Node] = here[p.Node] || p.here(now)
		silent[p.Node] = silent[p.Node] || !p.Gone
	}
	for _, l := range from.LostNodes[:min(len(from.LostNodes), maxLostShown)] {
		if here[l.Node] {
			continue
		}
		said := lossDeclared
		if l.Published {
			said = lossPublished
		}
		switch p := g.peers[l.ID]; {
		case p != nil && p.Gone:
			if !silent[l.Node] && p.Number >= l.Number {
				gone = append(gone, l.Node)
			}
		case now.Sub(steady) < learnFor && (p == nil || p.loss == lossUnsaid && p.Number < l.Number):
			g.peers[l.ID] = &peer{heartbeat: l.heartbeat, heard: now.Add(-millis(l.SilentMS)), loss: said}
		case p != nil && p.Number == l.Number:
			p.loss = max(p.loss, said)
		}
	}
	return gone
}

// lost returns how many peers are lost, and those of them that were heard last, in the order of
// nodes.
func (g *group) lost(now time.Time) (count int, latest []peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.peers {
		if p.isLost(now) {
			latest = append(latest, *p)
		}
	}
	slices.SortFunc(latest, func(x, y peer) int {
		return cmp.Or(y.heard.Compare(x.heard), strings.Compare(x.Node, y.Node))
	})
	count, latest = len(latest), latest[:min(len(latest), maxLostShown)]
	slices.SortFunc(latest, func(x, y peer) int { return strings.Compare(x.Node, y.Node) })
	return count, latest
}

// lostAlerts publishes the alerts about lost peers and their ends. It does not use the queue of
// events: an alert that waited there while the stream was unavailable might be wrong when it is
// published.
type lostAlerts struct {
	*base
	failed time.Time // when the stream did not answer last; owned by run
}

// run publishes until the context is done.
func (a *lostAlerts) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.look(ctx)
		}
	}
}

// look declares which peers are lost, and publishes what the stream lacks.
func (a *lostAlerts) look(ctx context.Context) {
	steady, here := a.group.away.steadySince(time.Now())
	if here {
		for _, l := range a.group.declare(time.Now(), steady, a.cfg.Node) {
			a.cfg.Log.Warn("a generator is lost: its heartbeats stopped, and it did not report that it ends",
				"node", l.Node, "last_heard", l.heard.UTC().Format(time.RFC3339))
		}
	}
	if err := a.publish(ctx, here); err != nil {
		a.failed = time.Now()
		a.cfg.Log.Debug("alerts about lost generators cannot be published; trying again", "error", err)
	}
}

// publish publishes what the stream lacks, until the stream does not answer. When it answers again,
// the peers may return with it: so they are heard first.
func (a *lostAlerts) publish(ctx context.Context, here bool) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if time.Since(a.failed) < heartbeatExpires {
		_, err := a.cfg.JS.Stream(ctx, events.Stream)
		return err
	}
	for {
		l, end, ok := a.group.next(time.Now(), here)
		if !ok {
			return nil
		}
		kind, id := "node.lost", fmt.Sprintf("lost.%s.%s.%d", l.Node, l.ID, l.Number)
		var body any = events.Lost{
			Node: l.Node, Run: l.ID, LastHeardMS: l.heard.UnixMilli(), Worker: l.Worker, UntilMS: l.until().UnixMilli()}
		if end {
			kind, id = "node.recovered", fmt.Sprintf("back.%s.%s.%d", l.Node, l.ID, l.Number)
			body = events.Recovered{Node: l.Node, Episode: events.EpisodeLost}
		}
		_, err := a.cfg.JS.PublishMsg(ctx, outbox.NewEventWithID(id, kind, l.Node, a.cfg.Node, body))
		if err != nil {
			return err
		}
		a.group.published(l, end)
		if end {
			a.cfg.Log.Info("a generator is no longer lost", "node", l.Node)
		}
	}
}

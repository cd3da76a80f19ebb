package generator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/outbox"
)

const (
	// lostAfter is how long a peer must be silent, while this generator hears NATS without a pause, before that raises
	// an alert.
	lostAfter = 5 * heartbeatEvery
	// lostFor is how long a lost peer is remembered at least, because it may be cut off and still answer callers. A
	// peer without a worker is over after it.
	lostFor = time.Hour
	// learnFor is how long a generator that begins to hear NATS learns from its peers which others are lost. After that
	// it knows it itself.
	learnFor = 2 * lostAfter
	// maxLost is how many silent peers are remembered, maxLostShown how many the state and the heartbeats list.
	maxLost, maxLostShown = 100, 20
)

// lostNode is what a heartbeat says of a lost node. A generator that was not there, or was cut off, learns it so.
type lostNode struct {
	heartbeat       // the last one; a part of it
	SilentMS  int64 `json:"silent_ms"` // how long ago it came
}

func (p *peer) lostNode(now time.Time) lostNode {
	b := heartbeat{Node: p.Node, ID: p.ID, Number: p.Number, Worker: p.Worker, ReservedUntil: p.ReservedUntil,
		UnixMS: p.UnixMS}
	return lostNode{b, now.Sub(p.heard).Milliseconds()}
}

// until is when what a peer has reserved is over. It is by this generator's clock: the peer's may be wrong.
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
func (p *peer) isLost(now time.Time) bool { return p.lost && now.Before(p.until()) }

// endLocked notes that the loss of a peer is over.
func (g *group) endLocked(p *peer) {
	if p.lost {
		g.found = append(g.found, *p)
	}
	p.lost = false
}

// lookLocked notes which peers are gone, because another run of the node was heard later, and which losses are over. It
// forgets peers when nothing depends on them any more, and the oldest ones if many are silent.
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
		case !p.Gone && !p.lost: // else the end of the alert must follow
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

// declare returns the peers that are lost now and were not before, and those whose loss is over. Only silence counts
// while this generator has heard NATS without a pause, since steady. Else one that was cut off, frozen or starved would
// declare its healthy peers lost. own is this generator's node, which another run may have had.
func (g *group) declare(now, steady time.Time, own string) (lost, found []peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lookLocked(now)
	for _, p := range g.peers {
		if !p.lost && !p.Gone && now.Before(p.until()) && p.Node != own &&
			now.Sub(p.heard) >= lostAfter && now.Sub(steady) >= lostAfter {
			p.lost = true
			lost = append(lost, *p)
		}
	}
	found, g.found = g.found, nil
	return lost, found
}

// learn takes in which nodes a peer reports as lost, if this generator has just begun to hear NATS, at the time steady:
// then it knows less than the peer. own is this generator's node. It returns the nodes of which the peer did not hear
// that they are gone: it was cut off then, and nothing else would end its alert.
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
		switch p := g.peers[l.ID]; {
		case here[l.Node]:
		case p != nil && p.Gone:
			if !silent[l.Node] && p.Number >= l.Number {
				gone = append(gone, l.Node)
			}
		case now.Sub(steady) < learnFor && (p == nil || !p.lost && p.Number <= l.Number):
			g.peers[l.ID] = &peer{heartbeat: l.heartbeat, heard: now.Add(-millis(l.SilentMS)), lost: true}
		}
	}
	return gone
}

// lost returns how many peers are lost, and those of them that were heard last, in the order of nodes.
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

// lookLost publishes which peers are lost, and which are not any more. Each generator that hears NATS does so. The IDs of
// the messages come from the last heartbeat, so the stream keeps one of each.
func (a *alerts) lookLost(now time.Time) {
	steady, hears := a.group.away.steadySince(now)
	if !hears {
		steady = now
	}
	lost, found := a.group.declare(now, steady, a.cfg.Node)
	send := func(p peer, kind, what string, body any) {
		id := fmt.Sprintf("%s.%s.%s.%d", what, p.Node, p.ID, p.Number)
		a.findings.send(outbox.NewEventWithID(id, kind, p.Node, a.cfg.Node, body))
	}
	for _, p := range found {
		a.cfg.Log.Info("a generator is no longer lost", "node", p.Node)
		send(p, "node.recovered", "back", events.Recovered{Node: p.Node, Episode: events.EpisodeLost})
	}
	for _, p := range lost {
		a.cfg.Log.Warn("a generator is lost: its heartbeats stopped, and it did not report that it ends",
			"node", p.Node, "last_heard", p.heard.UTC().Format(time.RFC3339))
		send(p, "node.lost", "lost", events.Lost{
			Node: p.Node, Run: p.ID, LastHeardMS: p.heard.UnixMilli(), Worker: p.Worker, UntilMS: p.until().UnixMilli()})
	}
}

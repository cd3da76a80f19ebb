package generator

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
)

const (
	// lostAfter is how long a peer must be silent, while this generator hears NATS without a pause,
	// before that raises an alert.
	lostAfter = 5 * heartbeatEvery
	// lostFor is how long a lost peer is remembered at least, because it may be cut off and still answer
	// callers. A peer without a worker is over after it.
	lostFor = time.Hour
	// maxLost is how many lost peers are remembered.
	maxLost = 100
	// maxLostShown is how many lost peers the state lists.
	maxLostShown = 20
)

// lostPeer is a node whose heartbeats stopped without a last one.
type lostPeer struct {
	node, run string    // run is the one that was heard last
	worker    *int64    // nil: it held none
	heard     time.Time // when its last heartbeat came, by this generator's clock
	until     time.Time // when what it reserved is over
	declared  bool      // it was silent for lostAfter
	returned  bool      // it was heard again

	// What the event stream has: tried is set before the first attempt to publish the alert. An attempt
	// without an answer may have succeeded, so the end is published if tried is set and the stream has the alert.
	tried, stored bool
}

// lasts reports whether the peer is lost now, so that operators must see it.
func (l *lostPeer) lasts(now time.Time) bool {
	return l.declared && !l.returned && now.Before(l.until)
}

// reservedUntil is when what m reserved is over. The time is by this generator's clock, because the peer's
// may be wrong.
func (m *member) reservedUntil() time.Time {
	if m.Worker == nil || m.ReservedUntil <= 0 || m.UnixMS <= 0 { // it has no worker
		return m.heard.Add(lostFor)
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	left := min(max(m.ReservedUntil-m.UnixMS, 0), most)
	return m.heard.Add(time.Duration(left) * time.Millisecond)
}

// loseLocked remembers a peer whose heartbeats have stopped. Of two runs of one node it keeps the one that was heard
// last, and the later end.
func (g *group) loseLocked(m member) {
	l := g.lost[m.Node]
	if l == nil {
		l = &lostPeer{node: m.Node, returned: true}
		g.lost[m.Node] = l
	}
	until := m.reservedUntil()
	if !l.returned && until.Before(l.until) {
		until = l.until
	}
	if l.returned || cmp.Or(m.heard.Compare(l.heard), strings.Compare(m.ID, l.run)) > 0 {
		if l.returned { // the end of an earlier alert may be on its way
			l.declared, l.stored = false, false
		}
		l.run, l.worker, l.heard, l.returned = m.ID, m.Worker, m.heard, false
	}
	l.until = until
}

// returnLocked notes that a node was heard.
func (g *group) returnLocked(node string) {
	if l := g.lost[node]; l != nil {
		l.returned = true
		if !l.tried {
			delete(g.lost, node)
		}
	}
}

// boundLocked forgets lost peers. One whose alert may be in the stream stays until the end of the alert is there too.
func (g *group) boundLocked(now time.Time) {
	var idle []*lostPeer // without an alert
	for node, l := range g.lost {
		switch {
		case l.tried:
		case !now.Before(l.until) && now.Sub(l.heard) >= lostFor:
			delete(g.lost, node)
		default:
			idle = append(idle, l)
		}
	}
	if len(g.lost) <= maxLost {
		return
	}
	slices.SortFunc(idle, func(x, y *lostPeer) int { return x.heard.Compare(y.heard) })
	for _, l := range idle[:min(len(idle), len(g.lost)-maxLost)] {
		delete(g.lost, l.node)
	}
}

// unheardLocked returns the nodes that fell silent in the last lostFor, in their order.
func (g *group) unheardLocked(now time.Time) (nodes []string) {
	for node, l := range g.lost {
		if !l.returned && now.Sub(l.heard) < lostFor {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// judge declares peers lost, and returns them. begin and end are those whose alert, or the end of it, the stream may
// lack. It counts only silence during which this generator heard NATS without a pause. Else a generator that was cut
// off, frozen or starved would declare its healthy peers lost. own is this generator's node, which another run may have
// had.
func (g *group) judge(now time.Time, own string) (lost, begin, end []lostPeer) {
	steady, ok := g.pulse.steadySince(now)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expireLocked(now)
	for _, l := range g.lost {
		if ok && !l.declared && !l.returned && now.Before(l.until) && l.node != own &&
			now.Sub(l.heard) >= lostAfter && now.Sub(steady) >= lostAfter {
			l.declared = true
			lost = append(lost, *l)
		}
		switch {
		case l.lasts(now) && !l.stored && ok:
			begin = append(begin, *l)
		case l.tried && (l.returned || !now.Before(l.until)):
			end = append(end, *l)
		}
	}
	return lost, begin, end
}

// trying notes that the alert about l is about to be published. It reports false if l is not lost any more.
func (g *group) trying(now time.Time, l lostPeer) bool {
	return g.changeLost(l, func(kept *lostPeer) bool {
		kept.tried = kept.tried || kept.lasts(now)
		return kept.lasts(now)
	})
}

// stored notes that the stream has the alert about l.
func (g *group) stored(l lostPeer) {
	g.changeLost(l, func(kept *lostPeer) bool { kept.tried, kept.stored = true, true; return true })
}

// ended notes that the stream has the end of the alert about l, or no such alert.
func (g *group) ended(l lostPeer) {
	g.changeLost(l, func(kept *lostPeer) bool {
		kept.tried, kept.stored = false, false
		if kept.returned {
			delete(g.lost, l.node)
		}
		return true
	})
}

// changeLost calls f with what is known of l, unless another run of its node was lost since.
func (g *group) changeLost(l lostPeer, f func(*lostPeer) bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := g.lost[l.node]
	return kept != nil && kept.run == l.run && f(kept)
}

// recall takes in an alert that the stream had before this generator began to hear its peers, and that has not ended.
func (g *group) recall(l lostPeer, own string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if kept := g.lost[l.node]; kept != nil { // it was heard since
		kept.tried = true
		return
	}
	l.declared, l.tried, l.stored, l.returned = true, true, true, l.node == own
	for _, m := range g.peers {
		l.returned = l.returned || m.Node == l.node
	}
	if len(g.lost) < maxLost {
		g.lost[l.node] = &l
	}
}

// released notes that an operator released a worker, so that nothing of it is reserved any more.
func (g *group) released(now time.Time, worker int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.lost {
		if l.worker != nil && *l.worker == worker && now.Before(l.until) {
			l.until = now
		}
	}
}

// lostNodes returns how many peers are lost, and those of them that were heard last, in the order of nodes.
func (g *group) lostNodes(now time.Time) (count int, latest []admin.LostNode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var lasting []*lostPeer
	for _, l := range g.lost {
		if l.lasts(now) {
			lasting = append(lasting, l)
		}
	}
	slices.SortFunc(lasting, func(x, y *lostPeer) int { return cmp.Or(y.heard.Compare(x.heard), strings.Compare(x.node, y.node)) })
	for _, l := range lasting[:min(len(lasting), maxLostShown)] {
		latest = append(latest, admin.LostNode{
			Node: l.node, LastHeardMS: l.heard.UnixMilli(), SilentMS: max(now.Sub(l.heard).Milliseconds(), 0), UntilMS: l.until.UnixMilli()})
	}
	slices.SortFunc(latest, func(x, y admin.LostNode) int { return strings.Compare(x.Node, y.Node) })
	return len(lasting), latest
}

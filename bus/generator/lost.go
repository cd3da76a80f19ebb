package generator

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
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
	// maxLost is how many lost peers are remembered, maxLostShown how many the state and the heartbeats list.
	maxLost, maxLostShown = 100, 20
)

// lostPeers are the nodes whose heartbeats stopped without a last one. Each generator that hears NATS publishes an
// alert about each, and its end. Their message IDs come from the last heartbeat, so the stream keeps one of each. A
// generator that was not there, or was cut off, learns from heartbeats what the others have published.
//
//	group ── add, back, bound     as heartbeats stop and come
//	heardHeartbeat ── learn       what a peer reports
//	lostAlerts ── declare, next, published
//
// The methods are safe for concurrent use. The group calls them under its lock.
type lostPeers struct {
	mu sync.Mutex
	of map[string]*lostPeer // by node
}

// lostPeer is a node whose heartbeats stopped. Its JSON form is for heartbeats.
type lostPeer struct {
	Node     string `json:"node"`
	Run      string `json:"run"` // the one that was heard last
	Number   uint64 `json:"number"`
	Worker   *int64 `json:"worker,omitempty"`
	SilentMS int64  `json:"silent_ms"` // when it was sent
	LeftMS   int64  `json:"left_ms"`   // until what it reserved is over
	Stored   bool   `json:"stored,omitempty"`

	heard    time.Time // when its last heartbeat, Number, came; by this generator's clock, as until
	until    time.Time // when what it reserved is over
	declared bool      // it was silent for lostAfter
	returned bool      // it was heard again, or an operator forgot it
	tried    bool      // the stream may have the alert: so its end is needed. Stored: it has
}

// lasts reports whether the node is lost now, so that operators must see it.
func (l *lostPeer) lasts(now time.Time) bool { return l.declared && !l.returned && now.Before(l.until) }

// over reports whether the alert needs an end.
func (l *lostPeer) over(now time.Time) bool { return l.tried && (l.returned || !now.Before(l.until)) }

// millis is a duration that a peer sent.
func millis(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// add notes that the heartbeats of m have stopped. Of two runs of one node it keeps the one that was heard last, and
// the later end.
func (s *lostPeers) add(m member) {
	until := m.heard.Add(lostFor)
	if m.Worker != nil && m.ReservedUntil > 0 && m.UnixMS > 0 { // by this generator's clock: the peer's may be wrong
		until = m.heard.Add(millis(m.ReservedUntil - m.UnixMS))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of[m.Node]
	switch {
	case l == nil:
		l = &lostPeer{Node: m.Node}
		s.of[m.Node] = l
	case l.returned: // the end of an earlier alert may be on its way
		l = &lostPeer{Node: m.Node, tried: l.tried}
		s.of[m.Node] = l
	case until.Before(l.until):
		until = l.until
	}
	if l.until = until; cmp.Or(m.heard.Compare(l.heard), strings.Compare(m.ID, l.Run)) > 0 {
		l.Run, l.Number, l.Worker, l.heard = m.ID, m.heartbeat.Number, m.Worker, m.heard
	}
}

// back notes that a node was heard, or that an operator says it is gone for good. It reports whether the node was lost.
func (s *lostPeers) back(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.of[node]
	if l == nil {
		return false
	}
	was := !l.returned
	if l.returned = true; !l.tried {
		delete(s.of, node)
	}
	return was
}

// bound forgets nodes. One whose alert may be in the stream stays until the end of the alert is there too.
func (s *lostPeers) bound(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of, func(_ string, l *lostPeer) bool {
		return !l.tried && !now.Before(l.until) && now.Sub(l.heard) >= lostFor
	})
	for len(s.of) > maxLost {
		var oldest *lostPeer
		for _, l := range s.of {
			if !l.tried && (oldest == nil || l.heard.Before(oldest.heard)) {
				oldest = l
			}
		}
		if oldest == nil {
			return
		}
		delete(s.of, oldest.Node)
	}
}

// unheard returns the nodes that fell silent in the last lostFor, in their order.
func (s *lostPeers) unheard(now time.Time) (nodes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, l := range s.of {
		if !l.returned && now.Sub(l.heard) < lostFor {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// declare returns the nodes that are lost now and were not before. Only silence counts while this generator has heard
// NATS without a pause, since steady. Else one that was cut off, frozen or starved would declare its healthy peers
// lost. own is this generator's node, which another run may have had.
func (s *lostPeers) declare(now, steady time.Time, own string) (lost []lostPeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.of {
		if !l.declared && !l.returned && now.Before(l.until) && l.Node != own &&
			now.Sub(l.heard) >= lostAfter && now.Sub(steady) >= lostAfter {
			l.declared = true
			lost = append(lost, *l)
		}
	}
	return lost
}

// next returns an alert that the stream may lack, or the end of one; ok is false if there is none. here: this generator
// hears NATS.
func (s *lostPeers) next(now time.Time, here bool) (l lostPeer, end, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.of {
		if here && l.lasts(now) && !l.Stored {
			l.tried = true // an attempt without an answer may have succeeded
			return *l, false, true
		}
		if l.over(now) {
			return *l, true, true
		}
	}
	return lostPeer{}, false, false
}

// published notes that the stream has what next returned.
func (s *lostPeers) published(l lostPeer, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.of[l.Node]
	switch {
	case kept == nil || kept.Run != l.Run || kept.Number != l.Number: // it was lost again
	case !end:
		kept.Stored = true
	case kept.returned:
		delete(s.of, l.Node)
	default:
		kept.tried, kept.Stored = false, false
	}
}

// learn takes in what a peer reports of a node that this generator does not hear. adopt: this generator has just begun
// to hear NATS, so the peer may know more.
func (s *lostPeers) learn(now time.Time, l lostPeer, adopt bool) {
	l.heard, l.until = now.Add(-millis(l.SilentMS)), now.Add(millis(l.LeftMS))
	l.declared, l.tried = true, l.Stored
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.of[l.Node]
	switch {
	case adopt && (kept == nil || !kept.tried && l.heard.After(kept.heard)):
		s.of[l.Node] = &l
	case kept != nil && kept.Run == l.Run && kept.Number == l.Number && l.Stored:
		kept.tried, kept.Stored = true, true
	}
}

// release notes that an operator released a worker, so that nothing of it is reserved any more.
func (s *lostPeers) release(now time.Time, worker int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.of {
		if l.Worker != nil && *l.Worker == worker && now.Before(l.until) {
			l.until = now
		}
	}
}

// lasting returns how many nodes are lost, and those of them that were heard last, in the order of nodes.
func (s *lostPeers) lasting(now time.Time) (count int, latest []lostPeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.of {
		if l.lasts(now) {
			shown := *l
			shown.SilentMS, shown.LeftMS = max(now.Sub(l.heard).Milliseconds(), 0), l.until.Sub(now).Milliseconds()
			latest = append(latest, shown)
		}
	}
	slices.SortFunc(latest, func(x, y lostPeer) int {
		return cmp.Or(y.heard.Compare(x.heard), strings.Compare(x.Node, y.Node))
	})
	count, latest = len(latest), latest[:min(len(latest), maxLostShown)]
	slices.SortFunc(latest, func(x, y lostPeer) int { return strings.Compare(x.Node, y.Node) })
	return count, latest
}

// lostNodes returns how many peers are lost, and the latest of them for the state.
func (g *group) lostNodes(now time.Time) (count int, latest []admin.LostNode) {
	count, lost := g.lost.lasting(now)
	for _, l := range lost {
		latest = append(latest, admin.LostNode{
			Node: l.Node, LastHeardMS: l.heard.UnixMilli(), SilentMS: l.SilentMS, UntilMS: l.until.UnixMilli()})
	}
	return count, latest
}

// learn takes in which nodes a peer reports as lost.
func (g *group) learn(now time.Time, lost []lostPeer, own string) {
	steady, ok := g.away.steadySince(now)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range lost[:min(len(lost), maxLostShown)] {
		heard := l.Node == own
		for _, m := range g.peers {
			heard = heard || m.Node == l.Node
		}
		if !heard {
			g.lost.learn(now, l, !ok || now.Sub(steady) < learnFor)
		}
	}
	g.lost.bound(now)
}

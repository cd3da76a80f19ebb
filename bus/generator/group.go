package generator

import (
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

const (
	// heartbeatEvery is how often a generator sends a heartbeat to the other generators.
	heartbeatEvery = time.Second
	// heartbeatExpires is how long after its last heartbeat a generator counts as gone.
	heartbeatExpires = 3 * time.Second
	// claimExpires is how long a worker is not taken after the last heartbeat that claims it, and
	// how long a generator claims a worker that it has lost. When a registry has lost its
	// records, the holders notice it one after the other. A worker must not go from one to
	// another whose clock is a little behind.
	claimExpires = 10 * time.Second
	// clockHeartbeats is how many heartbeats of a peer its clock is judged by.
	clockHeartbeats = 5
)

// heartbeat is what a generator reports about itself.
type heartbeat struct {
	Node      string `json:"node"`
	ID        string `json:"id"`               // of this run of the generator
	Polls     bool   `json:"polls,omitempty"`  // its last comparison of the database with the records was a success
	Opaque    bool   `json:"opaque,omitempty"` // it has seen the record of an opaque tag
	Segment   bool   `json:"segment"`          // it can answer leaf.segment
	Snowflake bool   `json:"snowflake"`        // it can answer leaf.snowflake
	Aside     bool   `json:"aside,omitempty"`  // it has left one of the two, because another generator can answer
	Server    string `json:"server,omitempty"` // the ID of its NATS server; empty: it is not connected
	Stays     bool   `json:"stays,omitempty"`  // it cannot move to another NATS server now
	// Worker is the one that it holds, Lost are those that it lost within claimExpires.
	Worker *int64  `json:"worker,omitempty"`
	Lost   []int64 `json:"lost,omitempty"`
	// ReservedUntil is the end of its worker's reservation, Unix ms by its clock; 0: it has no
	// worker.
	ReservedUntil int64 `json:"reserved_until_ms,omitempty"`
	// Forgotten is a lost node that is gone for good: an operator has just said so through this
	// generator, or a peer reports it as lost that did not hear so.
	Forgotten string     `json:"forgotten,omitempty"`
	Asks      bool       `json:"asks,omitempty"`       // all that hear it answer with a heartbeat
	Gone      bool       `json:"gone,omitempty"`       // this is the last heartbeat
	LostNodes []lostNode `json:"lost_nodes,omitempty"` // the nodes that operators see as lost, at most maxLostShown
	UnixMS    int64      `json:"unix_ms"`              // its clock
	Number    uint64     `json:"number"`               // of this run's heartbeats: the ns since it began
	// Witness is the installation that its data folder names, before it has joined one.
	Witness string `json:"witness,omitempty"`
	Identity
}

// group knows the peers: the other generators that were heard. Its methods take the time and are
// safe for concurrent use. They lock away, which never locks the group.
//
//	heartbeats.heard ── hear, learn             what a peer reports of itself, and of lost nodes
//	members, present, heard, anyPeer, count     who runs, and what they say of themselves
//	held, claimed, claimLost, lostWorkers       workers
//	lostAlerts ── declare, next, published      who is lost, see lost.go
type group struct {
	self string // ID of this run
	away *away  // whether the own heartbeats come back
	// look holds one when the loop of the generator must not wait for its next look: what this
	// generator or a peer can serve has changed.
	look chan struct{}

	mu           sync.Mutex
	installation string              // empty: this generator has not joined it yet
	peers        map[string]*peer    // by run
	ends         map[string]peer     // of losses, by node: those that the stream lacks
	ownClaims    map[int64]time.Time // workers that this generator has lost, and until when it claims them
}

// peer is a run of another generator. It is here, or it is silent, or it is gone: it reported its
// end, another run of its node was heard since, an operator forgot it, or it is of another
// installation.
type peer struct {
	heartbeat // the last one
	heard     time.Time
	loss      loss
	// ahead is by how many ms this generator's clock was ahead of the peer's when each of the last
	// heartbeats arrived. The way of a heartbeat adds to it, so the least is nearest.
	ahead []int64
}

func (p *peer) here(now time.Time) bool { return !p.Gone && now.Sub(p.heard) < heartbeatExpires }

func newGroup(self string) *group {
	return &group{
		self: self, away: newAway(), look: make(chan struct{}, 1),
		peers: make(map[string]*peer), ends: make(map[string]peer), ownClaims: make(map[int64]time.Time),
	}
}

// join makes peers of other installations count for nothing: they have other IDs of the same tags.
func (g *group) join(installation string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.installation = installation
	for _, p := range g.peers {
		if g.isRivalLocked(p.heartbeat) {
			g.endLocked(p)
			p.Gone = true
		}
	}
}

// isRivalLocked reports whether the sender of a heartbeat is known to be of another installation,
// or will be.
func (g *group) isRivalLocked(b heartbeat) bool {
	theirs := cmp.Or(b.Installation, b.Witness)
	return g.installation != "" && theirs != "" && theirs != g.installation
}

// hear notes a heartbeat, and reports whether the peer was not here before. It returns an empty
// heartbeat for the own ones and for other messages. clock is the own one, in Unix ms.
func (g *group) hear(now time.Time, clock int64, data []byte) (b heartbeat, isNew bool) {
	if json.Unmarshal(data, &b) != nil || b.ID == "" {
		return heartbeat{}, false
	}
	if b.ID == g.self {
		g.away.came(at(now), b.Number)
		return heartbeat{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.peers[b.ID]
	if p == nil {
		p = new(peer)
		g.lookLocked(now) // bounds the map: killed peers send no last heartbeat
		g.peers[b.ID] = p
	}
	if p.Segment != b.Segment || p.Snowflake != b.Snowflake || b.Gone {
		signal(g.look)
	}
	rival := g.isRivalLocked(b)
	isNew = !b.Gone && !rival && !p.here(now)
	g.endLocked(p)
	if b.UnixMS > 0 {
		p.ahead = append(p.ahead, clock-b.UnixMS)
		p.ahead = p.ahead[max(0, len(p.ahead)-clockHeartbeats):]
	}
	p.heartbeat, p.heard = b, now
	p.Gone = b.Gone || rival
	return b, isNew
}

// members returns the peers' last heartbeats and the nodes of the silent ones at one moment, so
// that no peer is missing in both. Both are in the order of nodes. A silent one counts for an hour.
func (g *group) members(now time.Time) (here []heartbeat, silent []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lookLocked(now)
	for _, p := range g.peers {
		switch {
		case p.here(now):
			here = append(here, p.heartbeat)
		case !p.Gone && now.Sub(p.heard) < lostFor:
			silent = append(silent, p.Node)
		}
	}
	slices.SortFunc(here, func(x, y heartbeat) int {
		return cmp.Or(strings.Compare(x.Node, y.Node), strings.Compare(x.ID, y.ID))
	})
	slices.Sort(silent)
	return here, silent
}

// unheard returns those of some nodes from which no peer is here, in order, but not those in
// without.
func (g *group) unheard(without []string, nodes ...string) []string {
	for _, b := range g.present(time.Now()) {
		without = append(without, b.Node)
	}
	slices.Sort(nodes)
	return slices.DeleteFunc(slices.Compact(nodes), func(node string) bool {
		return node == "" || slices.Contains(without, node)
	})
}

// present returns the peers' last heartbeats, in the order of nodes.
func (g *group) present(now time.Time) []heartbeat {
	here, _ := g.members(now)
	return here
}

// heard iterates over the peers that are here, under the lock.
func (g *group) heard(now time.Time) iter.Seq[*peer] {
	return func(yield func(*peer) bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, p := range g.peers {
			if p.here(now) && !yield(p) {
				return
			}
		}
	}
}

// allSilent reports whether there are two peers or more, and none was heard lately.
func (g *group) allSilent(now time.Time) bool {
	n := 0
	for p := range g.heard(now) {
		if n++; now.Sub(p.heard) <= silentAfter {
			return false
		}
	}
	return n > 1
}

// anyPeer reports whether the last heartbeat of any peer has the property, and came later
// than since.
func (g *group) anyPeer(now, since time.Time, has func(heartbeat) bool) bool {
	for p := range g.heard(now) {
		if has(p.heartbeat) && p.heard.After(since) {
			return true
		}
	}
	return false
}

// count returns how many peers sent a last heartbeat with the property.
func (g *group) count(now time.Time, has func(heartbeat) bool) (n int) {
	for p := range g.heard(now) {
		if has(p.heartbeat) {
			n++
		}
	}
	return n
}

// held reports whether a peer holds the worker.
func (g *group) held(now time.Time, worker int64) bool {
	return g.anyPeer(now, time.Time{}, func(b heartbeat) bool { return b.Worker != nil && *b.Worker == worker })
}

// claimed reports whether a peer holds the worker, held it within claimExpires, or has just lost
// it. One that reports its end has released its worker.
func (g *group) claimed(now time.Time, worker int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.peers {
		has := p.Worker != nil && *p.Worker == worker || slices.Contains(p.Lost, worker)
		if has && now.Sub(p.heard) < claimExpires {
			return true
		}
	}
	return false
}

// claimLost claims a worker that this generator has lost.
func (g *group) claimLost(now time.Time, worker int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ownClaims[worker] = now.Add(claimExpires)
}

// lostWorkers returns the workers that this generator has lost and still claims.
func (g *group) lostWorkers(now time.Time) []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.ownClaims, func(_ int64, until time.Time) bool { return now.After(until) })
	return slices.Collect(maps.Keys(g.ownClaims))
}

// offset is by how many ms this generator's clock is ahead of the median of the peers' clocks.
// ok is false if there are none.
func (g *group) offset(now time.Time) (ms int64, ok bool) {
	var ahead []int64
	for p := range g.heard(now) {
		if len(p.ahead) > 0 {
			ahead = append(ahead, slices.Min(p.ahead))
		}
	}
	return snowflake.Median(ahead), len(ahead) > 0
}

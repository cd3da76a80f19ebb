package generator

import (
	"cmp"
	"encoding/json"
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
	Format    int    `json:"format"`           // the highest format of a record that it knows
	Polls     bool   `json:"polls,omitempty"`  // its last comparison of the database with the records was a success
	Opaque    bool   `json:"opaque,omitempty"` // it has seen the record of an opaque tag
	Segment   bool   `json:"segment"`          // it can answer leaf.segment
	Snowflake bool   `json:"snowflake"`        // it can answer leaf.snowflake
	Aside     bool   `json:"aside,omitempty"`  // it has left one of the two, because another generator can answer
	Server    string `json:"server,omitempty"` // the ID of its NATS server; empty: it is not connected
	Stays     bool   `json:"stays,omitempty"`  // it cannot move to another NATS server now
	// Worker is the one that it holds, Lost are those that it has just lost.
	Worker *int64  `json:"worker,omitempty"`
	Lost   []int64 `json:"lost,omitempty"`
	// ReservedUntil is the end of its worker's reservation, Unix ms by its clock; 0: it has no worker.
	ReservedUntil int64 `json:"reserved_until_ms,omitempty"`
	// Released is a worker that an operator has just released through this generator.
	Released *int64 `json:"released,omitempty"`
	// Forgotten is a lost node of which an operator has just said through this generator that it is gone for good.
	Forgotten string     `json:"forgotten,omitempty"`
	Gone      bool       `json:"gone,omitempty"`       // this is the last heartbeat
	LostNodes []lostPeer `json:"lost_nodes,omitempty"` // the nodes that operators see as lost, at most maxLostShown
	UnixMS    int64      `json:"unix_ms"`              // its clock
	Number    uint64     `json:"number"`               // of this run's heartbeats, from 1
	// Witness is the installation that its data folder names, before it has joined one.
	Witness string `json:"witness,omitempty"`
	Identity
}

// group knows the peers: the other generators that are running. A peer is lost if its heartbeats
// stop without a last one. Its methods take the time and are safe for concurrent use. They lock lost and away, which
// never lock the group.
//
//	heardHeartbeat ── hear ── expireLocked ── lost.add
//	               └─ learn ── lost.learn
//	members, present, anyPeer, count            who runs, and what they say of themselves
//	held, claimed, claimLost, lostWorkers       workers
type group struct {
	self string    // ID of this run
	away *away     // whether the own heartbeats come back
	lost lostPeers // peers that fell silent
	// peerChanged holds one when what another generator can serve has changed.
	peerChanged chan struct{}

	mu        sync.Mutex
	peers     map[string]member   // by ID
	claims    map[int64]time.Time // when a peer last claimed a worker
	ownClaims map[int64]time.Time // workers that this generator has lost, and until when it claims them
}

// member is a peer.
type member struct {
	heartbeat
	heard time.Time
	// held is the last worker that it held and did not lose; nil: none. It gives the worker up before its last
	// heartbeat.
	held *int64
	// ahead is by how many ms this generator's clock was ahead of the peer's when each of the last
	// heartbeats arrived. The way of a heartbeat adds to it, so the least is nearest.
	ahead []int64
}

func newGroup(self string) *group {
	return &group{
		self: self, away: newAway(), peerChanged: make(chan struct{}, 1),
		peers: make(map[string]member), lost: lostPeers{of: make(map[string]*lostPeer)},
		claims: make(map[int64]time.Time), ownClaims: make(map[int64]time.Time),
	}
}

// hear notes a heartbeat, and reports whether it is the first of a peer. It returns an empty
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
	m, known := g.peers[b.ID]
	if m.Segment != b.Segment || m.Snowflake != b.Snowflake || b.Gone {
		signal(g.peerChanged)
	}
	g.lost.back(b.Node)
	if b.Gone {
		if m.held != nil { // it has released the worker
			delete(g.claims, *m.held)
		}
		delete(g.peers, b.ID)
		return b, false
	}
	if b.Worker != nil {
		g.claims[*b.Worker] = now
		m.held = b.Worker
	}
	for _, worker := range b.Lost {
		g.claims[worker] = now
		if m.held != nil && *m.held == worker {
			m.held = nil
		}
	}
	if !known {
		g.expireLocked(now) // bounds the map: killed peers send no last heartbeat
	}
	if b.UnixMS > 0 {
		m.ahead = append(m.ahead, clock-b.UnixMS)
	}
	g.peers[b.ID] = member{b, now, m.held, m.ahead[max(0, len(m.ahead)-clockHeartbeats):]}
	return b, !known
}

// expireLocked moves the peers whose heartbeats have stopped to the lost ones, unless another run of the node is heard.
func (g *group) expireLocked(now time.Time) {
	maps.DeleteFunc(g.peers, func(_ string, m member) bool {
		gone := now.Sub(m.heard) >= heartbeatExpires
		if gone {
			g.lost.add(m)
		}
		return gone
	})
	for _, m := range g.peers {
		g.lost.back(m.Node)
	}
	g.lost.bound(now)
}

// members returns the peers' last heartbeats and the nodes of lost peers at one moment, so that no
// peer is missing in both. Both are in the order of nodes.
func (g *group) members(now time.Time) (here []heartbeat, lost []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expireLocked(now)
	for _, m := range g.peers {
		here = append(here, m.heartbeat)
	}
	slices.SortFunc(here, func(x, y heartbeat) int {
		return cmp.Or(strings.Compare(x.Node, y.Node), strings.Compare(x.ID, y.ID))
	})
	return here, g.lost.unheard(now)
}

// present returns the peers' last heartbeats, in the order of nodes.
func (g *group) present(now time.Time) []heartbeat {
	here, _ := g.members(now)
	return here
}

// allSilent reports whether there are two peers or more, and none was heard lately.
func (g *group) allSilent(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.peers {
		if now.Sub(m.heard) <= silentAfter {
			return false
		}
	}
	return len(g.peers) > 1
}

// anyPeer reports whether the last heartbeat of any peer has the property, and came later
// than since.
func (g *group) anyPeer(now, since time.Time, has func(heartbeat) bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.peers {
		if has(m.heartbeat) && m.heard.After(since) && now.Sub(m.heard) < heartbeatExpires {
			return true
		}
	}
	return false
}

// format is the highest format of a record, up to known, that all peers know.
func (g *group) format(now time.Time, known int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.peers {
		if now.Sub(m.heard) < heartbeatExpires {
			known = min(known, m.Format)
		}
	}
	return max(known, 1)
}

// count returns how many peers sent a last heartbeat with the property.
func (g *group) count(now time.Time, has func(heartbeat) bool) (n int) {
	for _, b := range g.present(now) {
		if has(b) {
			n++
		}
	}
	return n
}

// held reports whether a peer holds the worker.
func (g *group) held(now time.Time, worker int64) bool {
	return g.anyPeer(now, time.Time{}, func(b heartbeat) bool { return b.Worker != nil && *b.Worker == worker })
}

// claimed reports whether a peer holds the worker, held it within claimExpires, or has just lost it.
func (g *group) claimed(now time.Time, worker int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	heard, ok := g.claims[worker]
	return ok && now.Sub(heard) < claimExpires
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
	g.mu.Lock()
	defer g.mu.Unlock()
	var ahead []time.Duration
	for _, m := range g.peers {
		if len(m.ahead) > 0 && now.Sub(m.heard) < heartbeatExpires {
			ahead = append(ahead, time.Duration(slices.Min(m.ahead))*time.Millisecond)
		}
	}
	return snowflake.Median(ahead).Milliseconds(), len(ahead) > 0
}

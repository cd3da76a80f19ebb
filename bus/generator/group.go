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

// Generators tell each other once a second that they are there. Who was not
// heard of for three seconds is taken for gone.
const (
	heartbeatEvery   = time.Second
	heartbeatExpires = 3 * time.Second
	// claimExpires is how long a worker is not taken after another generator was
	// last heard to hold it, and how long it is claimed after it was lost: when a
	// registry has lost its records, those who ran learn it one after the other, and a
	// worker must not go from one to another whose clock is a little behind.
	claimExpires = 10 * time.Second
)

// heartbeat is what a generator says of itself.
type heartbeat struct {
	Node      string `json:"node"`
	ID        string `json:"id"`        // of this run of the generator
	Segment   bool   `json:"segment"`   // it can answer leaf.segment
	Snowflake bool   `json:"snowflake"` // and leaf.snowflake
	// Worker is the one that it holds, Lost are those that it held until a moment ago.
	Worker *int64  `json:"worker,omitempty"`
	Lost   []int64 `json:"lost,omitempty"`
	Gone   bool    `json:"gone,omitempty"` // its last word
	UnixMS int64   `json:"unix_ms"`        // its clock
	Number uint64  `json:"number"`         // of this run's heartbeats, from 1
	Identity
}

// group knows the other generators that are running. Its methods take the
// time and are safe for concurrent use.
type group struct {
	self string // id of this run
	// peerChanged holds one when what another generator can serve has changed.
	peerChanged chan struct{}
	pulse       pulse // the own heartbeats that came back
	// listening is since when the others are heard.
	listening   time.Time
	lostWorkers lostWorkers // of this generator

	mu       sync.Mutex
	newcomer chan struct{}        // closed when a generator is heard for the first time
	others   map[string]member    // by id
	claims   map[int64]time.Time  // when a worker was last heard to be held
	silent   map[string]time.Time // by node: generators that fell silent without a last word, and when they were last heard
}

type member struct {
	heartbeat
	heard time.Time
	// ahead is by how many ms this generator's clock was ahead of the other's when
	// the last heartbeats arrived. The way of a heartbeat adds to it, so the least is nearest.
	ahead []int64
}

// clockHeartbeats is how many heartbeats a clock is judged by.
const clockHeartbeats = 5

func newGroup(self string) *group {
	return &group{
		self: self, peerChanged: make(chan struct{}, 1), newcomer: make(chan struct{}),
		others: make(map[string]member), claims: make(map[int64]time.Time), silent: make(map[string]time.Time),
	}
}

// hear takes in another generator's heartbeat, and reports whether that was not
// known. It returns none for the own and for what is no heartbeat. clock is the own one, in Unix ms.
func (g *group) hear(now time.Time, clock int64, data []byte) (b heartbeat, isNew bool) {
	if json.Unmarshal(data, &b) != nil || b.ID == "" {
		return heartbeat{}, false
	}
	if b.ID == g.self {
		g.pulse.came(now, b.Number)
		return heartbeat{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if was := g.others[b.ID]; was.Segment != b.Segment || was.Snowflake != b.Snowflake || b.Gone {
		signal(g.peerChanged)
	}
	delete(g.silent, b.Node)
	if b.Gone {
		if worker := g.others[b.ID].Worker; worker != nil { // given up in order
			delete(g.claims, *worker)
		}
		delete(g.others, b.ID)
		return b, false
	}
	if b.Worker != nil {
		g.claims[*b.Worker] = now
	}
	for _, worker := range b.Lost {
		g.claims[worker] = now
	}
	m, known := g.others[b.ID]
	if !known { // those that were killed had no last word: forget them now and then
		g.expireLocked(now)
		close(g.newcomer)
		g.newcomer = make(chan struct{})
	}
	ahead := m.ahead
	if b.UnixMS > 0 { // an older version does not tell
		ahead = append(ahead, clock-b.UnixMS)
	}
	g.others[b.ID] = member{b, now, ahead[max(0, len(ahead)-clockHeartbeats):]}
	return b, !known
}

// offset is by how many ms this generator's clock is ahead of the median of the others'; false:
// there are none.
func (g *group) offset(now time.Time) (ms int64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ahead []time.Duration
	for _, m := range g.others {
		if len(m.ahead) > 0 && now.Sub(m.heard) < heartbeatExpires {
			ahead = append(ahead, time.Duration(slices.Min(m.ahead))*time.Millisecond)
		}
	}
	return snowflake.Median(ahead).Milliseconds(), len(ahead) > 0
}

// awaitNewcomer returns a channel that is closed when a generator is heard for the first time.
func (g *group) awaitNewcomer() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newcomer
}

// present returns the other generators that are there, by node.
func (g *group) present(now time.Time) []heartbeat {
	here, _ := g.members(now)
	return here
}

// claimed reports whether another generator said lately that it holds the
// worker, or has just lost it.
func (g *group) claimed(now time.Time, worker int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	heard, ok := g.claims[worker]
	return ok && now.Sub(heard) < claimExpires
}

// held reports whether another generator says that it holds the worker.
func (g *group) held(now time.Time, worker int64) bool {
	return g.anyOther(now, time.Time{}, func(b heartbeat) bool { return b.Worker != nil && *b.Worker == worker })
}

// anyOther reports whether another generator has said, later than since, what
// offered looks for.
func (g *group) anyOther(now, since time.Time, offered func(heartbeat) bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.others {
		if offered(m.heartbeat) && m.heard.After(since) && now.Sub(m.heard) < heartbeatExpires {
			return true
		}
	}
	return false
}

// lostWorkers are the workers that were lost a moment ago. Its methods are safe for
// concurrent use; the zero value is ready.
type lostWorkers struct {
	mu    sync.Mutex
	until map[int64]time.Time
}

func (c *lostWorkers) lost(now time.Time, worker int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil {
		c.until = make(map[int64]time.Time)
	}
	c.until[worker] = now.Add(claimExpires)
}

// workers returns those that are still claimed.
func (c *lostWorkers) workers(now time.Time) (workers []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.until, func(_ int64, until time.Time) bool { return now.After(until) })
	return slices.Collect(maps.Keys(c.until))
}

const (
	// lostFor is how long presence remembers a generator that fell silent without a last
	// word, because it may be cut off and still answer callers.
	lostFor = time.Hour
	// maxLost is how many of them are remembered.
	maxLost = 100
)

// expireLocked forgets the generators that were not heard for heartbeatExpires, but remembers
// their names.
func (g *group) expireLocked(now time.Time) {
	maps.DeleteFunc(g.others, func(_ string, m member) bool {
		gone := now.Sub(m.heard) >= heartbeatExpires
		if gone {
			g.silent[m.Node] = m.heard
		}
		return gone
	})
	maps.DeleteFunc(g.silent, func(_ string, heard time.Time) bool { return now.Sub(heard) >= lostFor })
	for len(g.silent) > maxLost {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(g.silent)), func(x, y string) int { return g.silent[x].Compare(g.silent[y]) })
		delete(g.silent, oldest)
	}
	for _, m := range g.others { // a node that was started again
		delete(g.silent, m.Node)
	}
}

// members returns the other generators that are there, and the nodes of those that fell silent
// without a last word, at one moment: none is missing in both. Both are in the order of nodes.
func (g *group) members(now time.Time) (here []heartbeat, lost []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expireLocked(now)
	for _, m := range g.others {
		here = append(here, m.heartbeat)
	}
	slices.SortFunc(here, func(x, y heartbeat) int { return cmp.Or(strings.Compare(x.Node, y.Node), strings.Compare(x.ID, y.ID)) })
	return here, slices.Sorted(maps.Keys(g.silent))
}

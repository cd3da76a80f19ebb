package bus

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// statsEndpoint is the one endpoint of the service leaf whose $SRV.STATS
	// carry the generator's state as their data.
	statsEndpoint = "buffers"
	// busiestTags is how many tags the state lists.
	busiestTags = 20
)

// State is a generator's state, the data of its $SRV.STATS.
type State struct {
	Node    string `json:"node"`
	Version string `json:"version"` // of the program
	Address string `json:"address"` // of its NATS server
	// Worker is the one that it holds for snowflakes, until ReservedUntil (Unix
	// ms) unless that is moved on; nil: none.
	Worker        *int64 `json:"worker"`
	ReservedUntil int64  `json:"reserved_until_ms,omitempty"`
	Clock         Clock  `json:"clock"`
	// Ready is false while something that it needs is away; Missing says what.
	Ready   bool     `json:"ready"`
	Missing []string `json:"missing"`
	// Reasons says why, by what is missing.
	Reasons map[string]string `json:"reasons,omitempty"`
	Counts  Counts            `json:"counts"`
	Busiest []Buffer          `json:"busiest"` // the tags with most IDs handed out
}

// Clock is a generator's clock.
type Clock struct {
	UnixMS int64 `json:"unix_ms"`
}

// Counts are since the generator started.
type Counts struct {
	Requests      int64            `json:"requests"` // answered with IDs
	IDs           int64            `json:"ids"`
	Errors        map[Reason]int64 `json:"errors"`
	Waiting       int64            `json:"waiting"`        // requests, now
	Tags          int              `json:"tags"`           // in memory, now
	Failing       int              `json:"failing"`        // tags whose refills fail, now
	EventsQueued  int              `json:"events_queued"`  // now
	EventsDropped int64            `json:"events_dropped"` // for want of a stream
}

// stats is the micro.StatsHandler of the service leaf.
func (g *Generator) stats(e *micro.Endpoint) any {
	if e.Name != statsEndpoint {
		return json.RawMessage{} // no JSON, so micro leaves data out; nil would be "data":null
	}
	return g.state()
}

func (g *Generator) state() State {
	failing, _, _ := g.alloc.Failing()
	flakes := g.flakes.State()
	s := State{
		Node: g.cfg.Node, Version: g.cfg.Release, Address: g.cfg.Conn.ConnectedUrlRedacted(),
		Clock: Clock{g.cfg.Snowflake.Clock().Wall}, Missing: []string{}, Reasons: map[string]string{},
		Counts: Counts{
			Requests: g.counts.requests.Load(), IDs: g.counts.ids.Load(), Errors: g.counts.refusals(),
			Waiting: g.alloc.Waiting() + int64(flakes.Waiting), Tags: g.alloc.Tags(), Failing: failing,
			EventsQueued: len(g.publisher.queue), EventsDropped: g.publisher.dropped.Load(),
		},
		Busiest: []Buffer{},
	}
	miss := func(what string, why error) {
		s.Missing = append(s.Missing, what)
		s.Reasons[what] = why.Error()
	}
	if why := cmp.Or(g.cfg.StoreErr(), g.segments.healthy()); why != nil {
		miss("store", why)
	}
	if flakes.Worker >= 0 && g.noWorker() == nil {
		s.Worker, s.ReservedUntil = &flakes.Worker, flakes.ReservedUntil
	}
	switch {
	case g.noWorker() != nil:
		miss("worker", g.noWorker())
	case errors.Is(flakes.Err, snowflake.ErrClockBackwards):
		miss("clock", flakes.Err)
	case flakes.Err != nil:
		miss("worker", flakes.Err)
	}
	if g.draining.Load() {
		miss("draining", allocator.ErrClosed)
	}
	s.Ready = len(s.Missing) == 0
	for _, v := range g.alloc.Busiest(busiestTags) {
		b := buffer(v)
		b.Error = "" // bounds the size; leaf.admin.buffers has it
		s.Busiest = append(s.Busiest, b)
	}
	return s
}

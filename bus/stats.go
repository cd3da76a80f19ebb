package bus

import (
	"encoding/json"
	"math"
	"time"

	"github.com/nats-io/nats.go/micro"
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
	Node    string    `json:"node"`
	Version string    `json:"version"` // of the program
	Address string    `json:"address"` // of its NATS server
	Started time.Time `json:"started"`
	// Worker is the one that it holds for snowflakes, until ReservedUntil (Unix
	// ms) unless that is moved on; nil: none.
	Worker        *int64 `json:"worker"`
	ReservedUntil int64  `json:"reserved_until_ms,omitempty"`
	// RegistryAway says that the last report of the worker did not reach the registry.
	RegistryAway bool  `json:"registry_away,omitempty"`
	Clock        Clock `json:"clock"`
	Readiness
	// FailingLasts is how many seconds the IDs of the tags last whose refills fail, at the
	// present rates, the least of them; nil: none fails that is used.
	FailingLasts *float64 `json:"failing_lasts_s,omitempty"`
	Counts       Counts   `json:"counts"`
	Busiest      []Buffer `json:"busiest"` // the tags with most IDs handed out
}

// Clock is a generator's clock.
type Clock struct {
	UnixMS int64 `json:"unix_ms"`
	// OffsetMS is how far it is ahead of the median of the other generators', to
	// within the way of a message; nil: it hears none.
	OffsetMS *int64 `json:"offset_ms,omitempty"`
}

// Counts are since the generator started.
type Counts struct {
	Requests      int64            `json:"requests"` // answered with IDs
	IDs           int64            `json:"ids"`
	Errors        map[Reason]int64 `json:"errors"`
	Waiting       int64            `json:"waiting"`        // requests, now
	Tags          int              `json:"tags"`           // in memory, now
	States        map[string]int   `json:"states"`         // and in which state how many are
	Left          int64            `json:"left"`           // IDs in memory, of all tags, now
	Failing       int              `json:"failing"`        // tags whose refills fail, now
	EventsQueued  int              `json:"events_queued"`  // now
	EventsDropped int64            `json:"events_dropped"` // for want of a stream
	StoreErrors   int64            `json:"store_errors"`   // refills that failed, each attempt
}

// stats is the micro.StatsHandler of the service leaf.
func (g *Generator) stats(e *micro.Endpoint) any {
	if e.Name != statsEndpoint {
		return json.RawMessage{} // no JSON, so micro leaves data out; nil would be "data":null
	}
	return g.State()
}

// State returns the generator's state.
func (g *Generator) State() State {
	failing := g.alloc.Failing()
	totals := g.alloc.Totals()
	flakes := g.flakes.State()
	s := State{
		Node: g.cfg.Node, Version: g.cfg.Release, Address: g.cfg.Conn.ConnectedUrlRedacted(),
		Started: g.made.UTC().Truncate(time.Millisecond), Clock: Clock{UnixMS: g.cfg.Snowflake.Clock().Wall},
		Readiness: g.Readiness(),
		Counts: Counts{
			Requests: g.counts.requests.Load(), IDs: g.counts.ids.Load(), Errors: g.counts.refusals(),
			Waiting: g.alloc.Waiting() + int64(flakes.Waiting) + g.isolation.waiting.Load() + g.floors.waiting.Load(), Tags: g.alloc.Tags(), States: totals.States, Left: totals.Left, Failing: failing.Tags,
			EventsQueued: len(g.publisher.queue), EventsDropped: g.publisher.dropped.Load(),
			StoreErrors: g.alloc.Failures(),
		},
		Busiest: []Buffer{},
	}
	if !math.IsInf(totals.Lasts, 1) { // which is no JSON
		s.FailingLasts = &totals.Lasts
	}
	if flakes.Worker >= 0 && g.noWorker() == nil {
		s.Worker, s.ReservedUntil, s.RegistryAway = &flakes.Worker, flakes.ReservedUntil, flakes.RegistryAway
	}
	if offset, ok := g.presence.offset(time.Now()); ok {
		s.Clock.OffsetMS = &offset
	}
	for _, v := range g.alloc.Busiest(busiestTags) {
		b := buffer(v)
		b.Error = "" // bounds the size; leaf.admin.buffers has it
		s.Busiest = append(s.Busiest, b)
	}
	return s
}

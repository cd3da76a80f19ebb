package generator

import (
	"encoding/json"
	"math"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go/micro"
)

// busiestTags is how many tags the state lists.
const busiestTags = 20

// stats is the micro.StatsHandler of the service leaf.
func (g *Generator) stats(e *micro.Endpoint) any {
	if e.Name != wire.StatsEndpoint {
		return json.RawMessage{} // no JSON, so micro leaves data out; nil would be "data":null
	}
	return g.State()
}

// State returns the generator's state.
func (g *Generator) State() bus.State {
	failing := g.alloc.Failing()
	totals := g.alloc.Totals()
	flakes := g.flakes.State()
	s := bus.State{
		Node: g.cfg.Node, Version: g.cfg.Release, Address: g.cfg.Conn.ConnectedUrlRedacted(),
		Started: g.made.UTC().Truncate(time.Millisecond), Clock: bus.Clock{UnixMS: g.cfg.Snowflake.Clock().Wall},
		Readiness: g.Readiness(),
		Counts: bus.Counts{
			Requests: g.counts.requests.Load(), IDs: g.counts.ids.Load(), Errors: g.counts.refusals(),
			Waiting: g.alloc.Waiting() + int64(flakes.Waiting) + g.guard.waiting.Load() + g.floors.waiting.Load(), Tags: g.alloc.Tags(), States: totals.States, Left: totals.Left, Failing: failing.Tags,
			EventsQueued: len(g.publisher.queue), EventsDropped: g.publisher.dropped.Load(),
			StoreErrors: g.alloc.Failures(),
		},
		Busiest: []bus.Buffer{},
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

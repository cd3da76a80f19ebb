package generator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/nats-io/nats.go/micro"
)

var (
	errCutOff   = errors.New("the connection to NATS is lost")
	errSilent   = errors.New("NATS does not answer")
	errStarting = errors.New("the generator does not answer requests yet")
)

// busiestTags is how many tags with the highest rates the state lists, and endingTags how many of those that run out of
// IDs first.
const (
	busiestTags = 20
	endingTags  = 10
)

// maxNamed is how many tags a request for buffers may name.
const maxNamed = 100

// stats is the micro.StatsHandler of the service leaf.
func (g *Generator) stats(e *micro.Endpoint) any {
	if e.Name != wire.StatsEndpoint {
		return json.RawMessage{} // not JSON, so micro omits data; nil would be "data":null
	}
	return g.State()
}

// State returns the generator's state.
func (g *Generator) State() admin.State {
	failing := g.alloc.Failing()
	totals := g.alloc.Totals(endingTags)
	flakes := g.flakes.State()
	s := admin.State{
		Node: g.cfg.Node, Version: bus.Version(), Address: g.cfg.Conn.ConnectedUrlRedacted(),
		Server: g.cfg.Conn.ConnectedServerName(), Host: g.host, Embedded: g.embedded, HTTP: g.cfg.Describe["http"],
		Started: g.made.UTC().Truncate(time.Millisecond), Clock: admin.Clock{UnixMS: g.cfg.Snowflake.Clock().Wall},
		Readiness: g.Readiness(),
		Counts: admin.Counts{
			Requests: g.counts.requests.Load(), IDs: g.counts.ids.Load(), Borrowed: g.counts.borrowed.Load(), Overloads: g.counts.overloads.Load(), Errors: g.counts.refusals(),
			Waiting: g.alloc.Waiting() + int64(flakes.Waiting) + g.guard.waiting.Load() + g.floors.waiting.Load(),
			Tags:    g.alloc.Tags(), States: totals.States, Left: totals.Left, Failing: failing.Tags,
			EventsQueued: len(g.publisher.queue), EventsDropped: g.publisher.dropped.Load(),
			StoreErrors: g.alloc.Failures(),
		},
		Busiest: []admin.Buffer{},
	}
	if !math.IsInf(totals.Lasts, 1) { // infinity is no JSON
		s.FailingLasts = &totals.Lasts
	}
	for _, e := range totals.Ending {
		s.Ending = append(s.Ending, admin.EndingTag{Tag: e.Tag, Left: e.Left, Rate: math.Round(10*e.Rate) / 10})
	}
	if flakes.Worker >= 0 && g.noWorker() == nil {
		s.Worker, s.ReservedUntil, s.RegistryAway = &flakes.Worker, flakes.ReservedUntil, flakes.RegistryAway
	}
	if offset, ok := g.group.offset(time.Now()); ok {
		s.Clock.OffsetMS = &offset
	}
	s.Refused = g.counts.streaks.worst(time.Now())
	s.Counts.Lost, s.Lost = g.group.lostNodes(time.Now())
	for _, v := range g.alloc.Busiest(busiestTags) {
		b := buffer(v)
		b.Error, b.Rules = "", admin.TagRules{} // the state must stay small; leaf.admin.buffers has them
		s.Busiest = append(s.Busiest, b)
	}
	return s
}

func (g *Generator) buffers(_ context.Context, req admin.BuffersRequest) (admin.BuffersPage, error) {
	limit, err := pageLimit(req.Limit)
	if err != nil {
		return admin.BuffersPage{}, err
	}
	if len(req.Tags) > maxNamed {
		return admin.BuffersPage{}, badRequest("%d tags are named, more than %d", len(req.Tags), maxNamed)
	}
	page := admin.BuffersPage{Node: g.cfg.Node, Buffers: []admin.Buffer{}}
	views := g.alloc.Named(req.Tags)
	if len(req.Tags) == 0 {
		views = g.alloc.Views(pageQuery(req.PageRequest, limit))
	}
	for _, v := range views {
		page.Buffers = append(page.Buffers, buffer(v))
	}
	if n := fit(g, page.Buffers, limit); n < len(page.Buffers) {
		page.Buffers = page.Buffers[:n]
		page.Next = page.Buffers[n-1].Tag
	}
	return page, nil
}

func buffer(v allocator.View) admin.Buffer {
	b := admin.Buffer{
		Tag: v.Tag, State: v.State, Step: v.Step, Segments: []admin.Segment{}, Left: v.Left, Taken: v.Taken,
		Waiting: v.Waiting, Rate: v.Rate, Refilled: v.Refilled, Error: v.Error, Rules: rules(v.Rules),
	}
	if v.Order == allocator.Strict {
		b.Order, b.Writes, b.Requests, b.WaitMS = bus.OrderStrict, v.Writes, v.Requests, float64(v.Wait.Microseconds())/1000
	} else if !math.IsInf(v.Lasts, 1) { // infinity is no JSON
		lasts := math.Round(10*v.Lasts) / 10
		b.Lasts = &lasts
	}
	for _, s := range v.Segments {
		b.Segments = append(b.Segments, admin.Segment{First: bus.ID(s.First), Last: bus.ID(s.Last), Next: bus.ID(s.Next)})
	}
	return b
}

// Readiness says whether the generator has all that its configuration names.
func (g *Generator) Readiness() admin.Readiness {
	r := admin.Readiness{
		Segment: g.canServe(g.segments), Snowflake: g.canServe(g.snowflakes),
		Missing: []string{}, Reasons: map[string]string{},
	}
	miss := func(what string, why error) {
		r.Missing = append(r.Missing, what)
		r.Reasons[what] = why.Error()
	}
	switch {
	case g.phase.draining.Load(): // it has left the bus on purpose
	case !g.cfg.Conn.IsConnected():
		miss("bus", errCutOff)
	case !g.phase.serving.Load():
		miss("bus", errStarting)
	case !g.hears():
		miss("bus", errSilent)
	case g.deaf() != nil:
		miss("bus", g.deaf())
	}
	if why := g.cfg.NATSErr(); why != nil {
		miss("nats", why)
	}
	if why := cmp.Or(g.storeErr(), g.segments.healthy(), g.alloc.Failing().Store); why != nil {
		miss("store", why)
	}
	if why := g.keysErr.Load(); why != nil {
		miss("keys", *why)
	}
	switch why := g.snowflakes.healthy(); {
	case errors.Is(why, snowflake.ErrClockBackwards):
		miss("clock", why)
	case why != nil:
		miss("worker", why)
	}
	if g.phase.draining.Load() {
		miss("draining", allocator.ErrClosed)
	}
	r.Ready = len(r.Missing) == 0
	return r
}

package generator

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/bus/internal/outbox"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/nats-io/nats.go"
)

// Generator answers requests for IDs on one connection. It makes its parts, starts and stops them,
// and enters the queue groups; each part is a type with a comment of its own. All that it starts
// has ended when Run returns:
//
//	Run
//	├── outbox.Run        publishes events on the stream
//	├── lostAlerts.run    publishes which peers are lost
//	├── checks.run        looks around the generator: disk, replicas, keys of opaque tags
//	├── learner.run       after it was away: brings the records up to date, verifies the worker
//	├── queue.run         reads the requests of a service; there are two
//	├── preparation.run   prepares (installation, store, tags; retried until
//	│                     done), and runs the allocator (follows the tags; refills; loads ahead)
//	├── flakes.run        keeps a worker
//	├── heartbeats.run    says how this generator is
//	└── serve             leaves and enters the queue groups; moves to another NATS server; alerts
//	    └── services      leaf; leaf-segment and leaf-snowflake while they can be served
//	        └── requests  a goroutine for each request that waits, or asks the store
type Generator struct {
	*base
	log   *slog.Logger
	made  time.Time
	tasks tasks // in the background

	// The other generators.
	exchange  *exchange  // of records
	spreading *spreading // over the NATS servers
	lender    *lender    // to other generators
	handover  *handover  // to other generators, and from them

	// Serving.
	flakes               *flakes
	segments, snowflakes *service
	subscriptions        *subscriptions
	concealer            *concealer // of opaque tags
	requests             tasks      // requests that wait, or ask the store
	preparation          *preparation
	learner              *learner
	outbox               *outbox.Outbox // of events
	findings             *findings
	alerts               *alerts // owned by Run

	// For operators.
	admin  *administration
	checks *checks
	state  *state
}

// base is what the parts of a generator have in common. Each has an owner of its own.
type base struct {
	cfg        *Config
	phase      *phase
	link       *link
	group      *group      // which generators run, and what they can serve
	heartbeats *heartbeats // to them and from them
	membership *membership // of the installation
	alloc      *allocator.Allocator
}

// New returns a generator that does nothing until Run is called.
func New(cfg Config) *Generator {
	embedded := cfg.NATSErr != nil
	cfg.setDefaults()
	b := &base{cfg: &cfg, phase: newPhase(), group: newGroup(rand.Text())}
	g := &Generator{
		base: b, log: cfg.Log, made: time.Now(), exchange: &exchange{base: b, asking: make(chan struct{}, maxAsking)},
		spreading: &spreading{base: b, after: cmp.Or(cfg.spreadAfter, spreadAfter)},
	}
	b.link = &link{cfg.Conn, cfg.Log, b.group.away, &g.tasks}
	b.heartbeats = &heartbeats{base: b, spreading: g.spreading, changed: make(chan struct{}, 1)}
	b.membership = &membership{base: b, joined: make(chan struct{})}
	counts, borrower := &counts{base: b}, &borrower{base: b}
	g.subscriptions = &subscriptions{base: b, overloaded: counts.overloaded}
	g.outbox = outbox.New(cfg.JS, g.membership.openEvents, cfg.Log)
	g.findings = newFindings(cfg.Node, g.outbox.Publish)
	g.flakes = newFlakes(b, g.findings)

	// Serving.
	g.concealer = newConcealer(cfg.Keys, cfg.Conn, counts.overloaded)
	b.alloc = allocator.New(allocator.Config{
		Records: cfg.Records, Numbers: cfg.Numbers, Keys: peerKeys{cfg.Keys, g.exchange}, Index: cfg.Index,
		Node: cfg.Node, Run: g.group.self, Log: cfg.Log,
		LoadAhead: cfg.LoadAhead, Pace: g.outbox.Pace, Refresh: cfg.Refresh, Leads: g.exchange.leads,
		Push: g.exchange.push, Ask: g.exchange.askKnown, PassOn: borrower.passOn, Starting: g.phase.notPrepared,
		Notify: func(e allocator.Event) {
			if cfg.Observer != nil {
				cfg.Observer.Allocated(e)
			}
			if _, ok := e.(allocator.Claimed); !ok {
				g.findings.publish(allocatorEvent(cfg.Node, cfg.StoreKind, e))
			}
		},
		MaxBatch: cfg.MaxBatch, MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, MaxStep: cfg.MaxStep,
		Outlast: cfg.Outlast,
	})
	common := &common{
		base: b, subscriptions: g.subscriptions, flakes: g.flakes, borrower: borrower,
		concealer: g.concealer, counts: counts, requests: &g.requests, moving: g.spreading.moving.Load,
	}
	g.segments, g.snowflakes = newSegments(common), newSnowflakes(common)

	g.forPeers(borrower)
	tags := g.forOperators(counts, embedded)

	// The loops.
	g.preparation = &preparation{base: b, tags: tags, ready: func() {
		g.outbox.Publish(g.nodeEvent("started"))
		signal(g.heartbeats.changed)
	}}
	g.learner = &learner{b, g.flakes}
	g.alerts = &alerts{base: b, findings: g.findings, conditions: g.conditions()}
	return g
}

// forPeers makes what talks with the other generators.
func (g *Generator) forPeers(borrower *borrower) {
	h, s := g.heartbeats, g.spreading
	h.flakes, h.segments, h.snowflakes = g.flakes, g.segments, g.snowflakes
	s.segments, s.snowflakes, s.requests = g.segments, g.snowflakes, &g.requests
	g.lender = &lender{g.base, g.segments, g.snowflakes, &g.requests}
	g.handover = &handover{g.base, borrower, g.segments.offers}
}

// forOperators makes what operators ask, and what they change. It returns the part that creates
// tags.
func (g *Generator) forOperators(counts *counts, embedded bool) (tags *tagAdmin) {
	passing := &passing{g.base}
	tags = &tagAdmin{g.base, g.exchange, passing, g.findings}
	workers := &workerAdmin{g.base, g.flakes, g.findings}
	losses := &lossAdmin{g.base, g.exchange, workers}
	g.checks = newChecks(g.cfg, peerKeys{g.cfg.Keys, g.exchange})
	host, _ := os.Hostname()
	g.state = &state{
		base: g.base, made: g.made, host: host, embedded: embedded, subscriptions: g.subscriptions, flakes: g.flakes,
		checks: g.checks, outbox: g.outbox, findings: g.findings, counts: counts,
		segments: g.segments, snowflakes: g.snowflakes,
	}
	g.admin = &administration{
		base: g.base, counts: counts, passing: passing, requests: &g.requests, slots: make(chan struct{}, maxAdmin),
		endpoints: endpoints(tags, losses, workers, g.state),
	}
	return tags
}

// nodeEvent is the event that this generator has started or stopped.
func (g *Generator) nodeEvent(what string) *nats.Msg {
	node := g.cfg.Node
	return outbox.NewEvent("node."+what, node, node, events.Node{Node: node, Version: wire.Version(),
		Address: g.cfg.Address(), Config: g.cfg.Describe, Started: g.made.UTC()})
}

// Take returns n IDs of tag as leaf.segment.<tag> does, for the HTTP server in the generator's
// process. It waits for them if it must. An error is a *[bus.Error], or the context's.
func (g *Generator) Take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	return g.segments.take(ctx, tag, n)
}

// Order returns the order of a tag whose IDs this generator has handed out; of other tags it may
// not know it.
func (g *Generator) Order(tag string) allocator.Order { return g.alloc.Order(tag) }

// Snowflakes returns n snowflakes as leaf.snowflake does. Otherwise it is like Take.
func (g *Generator) Snowflakes(ctx context.Context, n int64) ([]bus.Range, error) {
	return g.snowflakes.take(ctx, "", n)
}

// Decode returns the parts of a snowflake in decimal. An error is a *[bus.Error].
func (g *Generator) Decode(text string) (bus.Decoded, error) {
	id, ok := wire.ParseID([]byte(text))
	if !ok {
		return bus.Decoded{}, badRequest("%s is not a snowflake: send its decimal number", idspace.Quote(text))
	}
	p, err := g.cfg.Snowflake.Layout.Decode(id)
	if err != nil {
		return bus.Decoded{}, toError(err)
	}
	return bus.Decoded{
		ID: bus.ID(id), Time: time.UnixMilli(p.UnixMS).UTC().Format(snowflake.TimeFormat),
		UnixMS: p.UnixMS, Worker: p.Worker, Sequence: p.Sequence,
	}, nil
}

// Initialised reports whether the store has been opened, and the tags of the start exist.
func (g *Generator) Initialised() bool { return g.phase.prepared.Load() }

// Wanted reports whether requests of a kind should come to this generator, as service does for
// NATS: it can answer them with IDs, or hears of no other generator that can.
func (g *Generator) Wanted(kind Kind) bool {
	s := g.segments
	if kind == SnowflakeKind {
		s = g.snowflakes
	}
	if !g.phase.serving.Load() || g.phase.draining.Load() {
		return false
	}
	if s.healthy() == nil {
		return true
	}
	// A generator that is cut off hears no peer.
	return g.link.hears() && !g.group.anyPeer(time.Now(), time.Time{}, s.offers)
}

// State returns the generator's state.
func (g *Generator) State() admin.State { return g.state.whole() }

// Buffers returns a page of what the generator has in memory, as leaf.admin.buffers does.
func (g *Generator) Buffers(ctx context.Context, req admin.BuffersRequest) (admin.BuffersPage, error) {
	return g.state.buffers(ctx, req)
}

// Readiness says whether the generator has all that its configuration names.
func (g *Generator) Readiness() admin.Readiness { return g.state.readiness() }

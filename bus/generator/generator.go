package generator

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
)

// Generator answers requests for IDs on one connection. All that it starts has ended when Run
// returns:
//
//	Run
//	├── publisher.run     publishes events on the stream
//	├── lostAlerts.run    publishes which peers are lost
//	├── keys.run          looks whether the keys of opaque tags are there
//	├── watchAway         brings the records up to date after the generator was away, and verifies its worker
//	├── queue.run         reads the requests of a service; there are two
//	├── work              prepare (installation, store, tags; retried until
//	│                     done), then allocator.Run (follows the tags; refills; loads ahead)
//	├── runFlakes         keeps a worker
//	└── serve             heartbeats; leaves and enters the queue groups; moves to another NATS server; alerts
//	    └── services      leaf; leaf-segment and leaf-snowflake while they can be served
//	        └── requests  a goroutine for each request that waits, or asks the store
type Generator struct {
	cfg  Config
	log  *slog.Logger
	made time.Time

	alloc     *allocator.Allocator
	flakes    *snowflake.Generator
	publisher *publisher

	// The other generators.
	group      *group       // which generators run, and what they can serve
	spreading  spreading    // over the NATS servers
	heardPeers atomic.Int64 // when it had last heard all that run, Unix ns
	exchange   *exchange    // of records
	membership membership   // of the installation

	// Serving.
	segments, snowflakes *service
	counts               counts
	borrows              borrows         // from other generators
	rooms                rooms           // for what others hand over
	requests             tasks           // requests that wait, or ask the store
	concealer            *concealer      // of opaque tags
	tasks                tasks           // in the background
	life                 context.Context // of tasks
	subscriptions        *subscriptions
	phase                phase
	failed               chan error    // why Run must end; holds one
	changed              chan struct{} // holds one when the peers need a heartbeat at once, because the state has changed
	alerts               *alerts       // owned by Run

	// For operators.
	admin   *administration
	tags    *tagAdmin
	workers *workerAdmin
	keys    *keyCheck
	state   *state
}

// phase is how far the generator is, between its start and its stop.
type phase struct {
	opened   atomic.Bool           // the store is open
	prepared atomic.Bool           // the store is open, and the tags of the start exist
	unready  atomic.Pointer[error] // why the last step of the preparation failed; nil: none did
	serving  atomic.Bool           // NATS has confirmed the subscriptions, and Run has not failed
	begun    chan struct{}         // closed when serving was first true
	draining atomic.Bool
	refusing atomic.Bool // it drains, and hears no other generator
}

// New returns a generator that does nothing until Run is called.
func New(cfg Config) *Generator {
	cfg.MaxWait = cmp.Or(cfg.MaxWait, allocator.DefaultMaxWait)
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, allocator.DefaultMaxWaiting)
	cfg.MaxStep = cmp.Or(cfg.MaxStep, allocator.DefaultMaxStep)
	if cfg.Workers == nil {
		cfg.Workers = cfg.Snowflake.Registry
	}
	if cfg.Unwritable == nil {
		cfg.Unwritable = func() error { return nil }
	}
	if cfg.Keys == nil {
		cfg.Keys = noKeys{}
	}
	embedded := cfg.NATSErr != nil
	if !embedded {
		cfg.NATSErr = func() error { return nil }
	}
	if cfg.Snowflake.Clock == nil {
		cfg.Snowflake.Clock = snowflake.SystemClock()
	}
	g := &Generator{
		cfg: cfg, log: cfg.Log, made: time.Now(), group: newGroup(rand.Text()),
		failed: make(chan error, 1), changed: make(chan struct{}, 1), phase: phase{begun: make(chan struct{})},
	}
	g.concealer = newConcealer(cfg.Keys, cfg.Conn, g.counts.overloaded)
	g.spreading.g, g.spreading.after = g, cmp.Or(cfg.spreadAfter, spreadAfter)
	m := &g.membership
	m.cfg, m.peers, m.hearPeers, m.fail, m.joined = &g.cfg, g.group, g.hearPeers, g.fail, make(chan struct{})
	m.announce = func() { g.sendHeartbeat(false) }
	g.publisher = newPublisher(cfg.JS, g.membership.openEvents, cfg.Log)
	g.subscriptions = &subscriptions{conn: cfg.Conn, log: cfg.Log, serving: g.phase.serving.Load, fail: g.fail}
	g.flakes = g.newFlakes()
	g.segments, g.snowflakes = newSegments(g), newSnowflakes(g)
	g.exchange = &exchange{
		cfg: &g.cfg, group: g.group, tasks: &g.tasks, installation: g.membership.installation, hearPeers: g.hearPeers, turn: make(chan struct{}, 1),
	}
	g.alloc = allocator.New(allocator.Config{
		Records: cfg.Records, Numbers: cfg.Numbers, Keys: peerKeys{cfg.Keys, g.exchange}, Index: cfg.Index,
		Node: cfg.Node, Run: g.group.self, Log: cfg.Log,
		LoadAhead: cfg.LoadAhead, Pace: g.publisher.pace, Refresh: cfg.Refresh, Leads: g.exchange.leads,
		Push: g.exchange.push, Ask: g.exchange.askKnown, PassOn: g.passOn, Starting: g.notPrepared,
		Notify: func(e allocator.Event) {
			g.counts.streaks.reserved(e)
			if cfg.Observer != nil {
				observe(cfg.Observer, e)
			}
			if _, ok := e.(allocator.Claimed); !ok {
				g.publish(allocatorEvent(cfg.Node, cfg.StoreKind, e))
			}
		},
		MaxBatch: cfg.MaxBatch, MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, MaxStep: cfg.MaxStep, Outlast: cfg.Outlast,
	})
	g.exchange.alloc = g.alloc
	g.alerts = &alerts{
		cfg: &g.cfg, alloc: g.alloc, opened: g.phase.opened.Load, publish: g.publish, natsWasWell: cfg.NATSErr() == nil,
		crowded: func(now time.Time) error { return g.spreading.err(now, g.group.self, cfg.Conn.ConnectedServerName()) },
	}
	g.forOperators(embedded)
	return g
}

// Run serves until the context is done, and then drains: it leaves its queue groups, answers
// all requests that it has accepted, publishes its events and closes the connection. Run fails
// if the generator does not belong here, does not hear its peers, is refused by the registry of workers
// (see [snowflake.ErrRefused]), or if its connection is closed for good. Then it refuses
// requests that wait at once.
func (g *Generator) Run(ctx context.Context) error {
	r := new(run)
	g.life, r.endLife = context.WithCancel(context.WithoutCancel(ctx))
	g.admin.life, g.exchange.life = g.life, g.life
	g.subscriptions.watch()
	r.closed = g.cfg.Conn.StatusChanged(nats.CLOSED)
	status := g.cfg.Conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	connected := g.cfg.Conn.StatusChanged(nats.CONNECTED)
	r.events = background(g.publisher.run)
	alerts := &lostAlerts{node: g.cfg.Node, js: g.cfg.JS, observer: g.cfg.Observer, log: g.log, group: g.group}
	r.lost = background(alerts.run)
	r.keys = background(g.keys.run)
	r.away = background(func(ctx context.Context) { g.watchAway(ctx, connected) })
	r.segments, r.snowflakes = background(g.segments.queue.run), background(g.snowflakes.queue.run)
	err := g.listen()
	if err == nil { // otherwise neither work nor flakes must begin
		r.work = background(g.work)
		r.flakes = background(g.runFlakes)
		err = g.serve(ctx, r, status)
	}
	g.stop(r, err)
	return err
}

// run is what stop must end.
type run struct {
	events, lost, keys, away, segments, snowflakes, work, flakes stopper
	leaf                                                         micro.Service // nil: not added yet
	endLife                                                      context.CancelFunc
	closed                                                       <-chan nats.Status
}

// stop ends everything that was started. why is the error that ended the generator; nil: the
// context ended it.
func (g *Generator) stop(r *run, why error) {
	if why != nil {
		g.phase.serving.Store(false)
	}
	g.phase.draining.Store(true)
	g.sendHeartbeat(false)
	heartbeats := background(g.sendHeartbeats)
	// Leave, so that no new requests come, and finish those that are here. A generator that failed must not reserve for
	// these.
	ctx, cancel := g.drainTime()
	defer cancel()
	if why == nil {
		g.awaitOthers(ctx)
	}
	g.leave(ctx, r)
	if why == nil {
		g.requests.wait(ctx)
		r.work.stop() // no refill brings more
		g.handOver(ctx)
		g.requests.wait(ctx) // those that came meanwhile borrow
	}

	// Refuse the requests that still wait.
	r.lost.stop()
	r.keys.stop()
	r.work.stop()
	r.flakes.stop()
	r.away.stop()
	g.group.away.end()
	r.endLife()
	g.requests.close()
	g.tasks.close()

	if g.phase.prepared.Load() { // so the start was published
		g.publish(g.nodeEvent("stopped"))
	}
	r.events.stop()
	heartbeats.stop()
	g.sendHeartbeat(true) // not before: until here a change of max_id waits for this generator
	// The last callbacks are answered from memory while the connection drains.
	if err := g.cfg.Conn.Drain(); err == nil {
		<-r.closed
	}
	r.segments.stop()
	r.snowflakes.stop()
	if err := g.flakes.Close(); err != nil {
		g.log.Warn("the file of the worker cannot be written: the next start waits until the clock has passed the time that the file reserves",
			"error", err)
	}
}

// leave leaves all queue groups, and waits until the requests that NATS has passed on are answered, or wait.
func (g *Generator) leave(ctx context.Context, r *run) {
	defer g.phase.refusing.Store(false) // what still comes is answered
	var err error
	if r.leaf != nil {
		err = r.leaf.Stop()
	}
	g.segments.close()
	g.snowflakes.close()
	if err := errors.Join(err, g.flushConn()); err != nil {
		g.log.Warn("the queue groups could not be left in order", "error", err) // NATS is away
	}
	until(ctx, g.left)
}

// left reports whether the queue groups are left, and all their requests were handled.
func (g *Generator) left() bool { return g.segments.queue.left() && g.snowflakes.queue.left() }

// degradedDrain is how long requests wait at the end of a generator that has lost its
// embedded NATS server. Hardly any is answered, and the next start must not be late.
const degradedDrain = time.Second

// drainTime is the time for the answers to the requests that were accepted.
func (g *Generator) drainTime() (context.Context, context.CancelFunc) {
	most := g.cfg.DrainTimeout
	if g.alerts.nats.reported && g.cfg.NATSErr() != nil {
		most = min(most, degradedDrain)
	}
	return context.WithTimeout(context.Background(), most)
}

// stopper stops what runs in the background, and waits until it has ended. The zero value
// stops nothing.
type stopper struct {
	cancel context.CancelFunc
	done   <-chan struct{}
}

// background runs f until it is stopped.
func background(f func(context.Context)) stopper {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return stopper{cancel, done}
}

func (s stopper) stop() {
	if s.cancel != nil {
		s.cancel()
		<-s.done
	}
}

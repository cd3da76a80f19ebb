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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// Config says how a [Generator] works. All fields are needed but those that have a
// default, Installation, Recent, Tags, Describe, Ready and Observer.
type Config struct {
	// Conn is the connection to NATS. Its closed and error handlers must be set
	// before Run, which closes it in the end.
	Conn *nats.Conn
	JS   jetstream.JetStream

	// Store keeps the tags.
	Store allocator.Store
	// Join enters the installation, and Open then opens the Store. They are
	// called again until they succeed; an error that matches
	// [allocator.ErrRefused] ends the generator. Before Join makes
	// an installation's record it calls begin; if begin fails it makes none.
	Join func(ctx context.Context, begin func(context.Context) error) (Identity, error)
	Open func(context.Context) error
	// StoreErr says why the Store is away, as far as it has noticed; nil: it is
	// not. One that matches [allocator.ErrRefused] ends the generator. Default: not known.
	StoreErr func() error
	// NATSErr says why the NATS server that runs in this process does not keep its part of the
	// installation's state; nil: it does. It must answer at once. Default: no server to ask.
	NATSErr func() error
	// OpenEvents makes sure that the stream of events is there. It is called
	// again when the stream may have gone.
	OpenEvents func(context.Context) error

	// Snowflake says how snowflakes are made. Layout, Registry, File and Place
	// are needed; this package sets what connects it to other generators.
	Snowflake    snowflake.Config
	RegistryKind string // of workers: kv, zookeeper
	// Workers is the same registry for administration: a handle of its own where
	// a handle remembers what it has read. Default: the registry.
	Workers snowflake.Registry
	// Installation is the one that the data folder belongs to; empty: none yet.
	Installation string

	Marks  *allocator.Marks
	Recent string // file of the tags used in the last day; empty: none is kept
	Node   string // name of the generator: [A-Za-z0-9_.-]{1,64}, in tokens that are not empty
	Log    *slog.Logger

	// Tags are created where they do not exist and never did.
	Tags []allocator.Tag

	// The bounds of the allocator; see its Config. MaxStep bounds also the step
	// that an operator may give a tag.
	MaxBatch   int64
	MaxWait    time.Duration
	MaxWaiting int64
	MaxStep    int64
	// DrainTimeout is how long requests that wait when the generator is to stop
	// may go on waiting.
	DrainTimeout time.Duration

	// Release is the version of the program, and Describe its configuration
	// without secrets: for the events of start and stop.
	Release  string
	Describe map[string]string

	// Ready is called once, when requests are answered.
	Ready func()

	// Observer hears what the generator does, for metrics. Default: nobody.
	Observer Observer
}

// Generator answers requests for IDs on one connection. Everything that it
// starts has ended when Run returns:
//
//	Run
//	├── publisher.run     brings events to the stream
//	├── work              prepare (installation, evidence, store, tags; until
//	│                     done), then allocator.Run (follows the tags; refills; loads ahead)
//	├── runFlakes         keeps a worker
//	├── keepFloors        asks what operators have set, after it was cut off
//	├── guard             sees that the worker's record is looked at after a reconnect
//	├── attend            beats of presence; steps aside and comes back
//	└── services          leaf; leaf-segment and leaf-snowflake while they can be served
//	    └── a goroutine for each request that waits, or asks the store
type Generator struct {
	cfg  Config
	log  *slog.Logger
	id   string // of this run
	made time.Time

	alloc                *allocator.Allocator
	publisher            *publisher
	presence             *presence
	flakes               *snowflake.Generator
	segments, snowflakes *issuer
	counts               counts

	claims    claims
	verifying atomic.Bool // the worker's record
	guard     reconnectGuard
	joined    chan struct{}            // closed when identity is known
	news      chan struct{}            // the others should hear a beat
	identity  atomic.Pointer[Identity] // nil: not joined yet
	unjoined  atomic.Pointer[error]    // why not
	rival     chan error               // why another installation's generator ends this one
	listening time.Time                // since when the others are heard
	// storeFails is what the log says of the store; owned by Run.
	storeFails bool
	// degraded says that the alert nats.degraded is not over, natsWasWell that the server was
	// well once; owned by Run.
	degraded, natsWasWell bool
	history               history
	floors                *floors
	opened                atomic.Bool           // the store is open
	prepared              atomic.Bool           // the store is open, and the tags of the start are made
	unready               atomic.Pointer[error] // why it is not prepared, if known
	serving               atomic.Bool           // NATS has confirmed its subscriptions, and it has not failed
	draining              atomic.Bool

	life       context.Context // of administrative requests and tasks
	requests   tasks           // that wait, or ask the store
	tasks      tasks           // in the background
	adminSlots chan struct{}   // taken by each administrative request
}

// NewGenerator returns a generator that does nothing until Run is called.
func New(cfg Config) *Generator {
	cfg.MaxWait = cmp.Or(cfg.MaxWait, allocator.DefaultMaxWait)
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, allocator.DefaultMaxWaiting)
	cfg.MaxStep = cmp.Or(cfg.MaxStep, allocator.DefaultMaxStep)
	if cfg.Workers == nil {
		cfg.Workers = cfg.Snowflake.Registry
	}
	if cfg.StoreErr == nil {
		cfg.StoreErr = func() error { return nil }
	}
	if cfg.NATSErr == nil {
		cfg.NATSErr = func() error { return nil }
	}
	if cfg.Snowflake.Clock == nil {
		cfg.Snowflake.Clock = snowflake.SystemClock()
	}
	g := &Generator{cfg: cfg, log: cfg.Log, id: rand.Text(), made: time.Now(), rival: make(chan error, 1), joined: make(chan struct{}), news: make(chan struct{}, 1), adminSlots: make(chan struct{}, maxAdmin), floors: newFloors()}
	g.natsWasWell = cfg.NATSErr() == nil
	g.publisher = newPublisher(cfg.JS, cfg.OpenEvents, g.stamp, cfg.Log)
	g.presence = newPresence(g.id)
	g.presence.pulse.returned = g.paused
	g.flakes = g.newFlakes()
	g.segments, g.snowflakes = newSegments(g), newSnowflakes(g)
	g.alloc = allocator.New(allocator.Config{
		Store: segmentStore{cfg.Store, g}, Marks: cfg.Marks, Recent: cfg.Recent, Log: cfg.Log, Evidence: g.evidence,
		Notify: func(e allocator.Event) {
			if refill, ok := e.(allocator.Refilled); ok && cfg.Observer != nil {
				cfg.Observer.Refilled(refill)
			}
			g.publish(allocatorEvent(cfg.Node, e))
		},
		MaxBatch: cfg.MaxBatch, MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, MaxStep: cfg.MaxStep,
	})
	return g
}

// Run serves until the context is done, and then drains: it leaves its queue
// groups, answers all requests that it has accepted, hands over its events and
// closes the connection. An error says that the generator does not belong
// here, does not hear the others, must not issue snowflakes (see [snowflake.ErrRefused]), or
// that its connection is gone for good. Then requests that wait are refused at once.
func (g *Generator) Run(ctx context.Context) error {
	life, endLife := context.WithCancel(context.WithoutCancel(ctx))
	defer endLife()
	g.life = life
	g.guard.checked.Store(g.reconnects()) // it holds no worker yet
	closed := g.cfg.Conn.StatusChanged(nats.CLOSED)
	status := g.cfg.Conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	guarded := g.cfg.Conn.StatusChanged(nats.RECONNECTING, nats.CONNECTED)

	stopEvents := background(g.publisher.run)
	err := g.listen()
	var services services
	ready, refused := make(chan struct{}), make(chan error, 2) // one each of stopWork and stopFlakes
	stopWork, stopFlakes := func() {}, func() {}               // a generator that does not hear the others starts neither
	stopFloors := background(g.keepFloors)
	stopGuard := background(func(ctx context.Context) { g.watchConnection(ctx, guarded) })
	if err == nil {
		stopWork = background(func(ctx context.Context) { g.work(ctx, ready, refused) })
		stopFlakes = background(func(ctx context.Context) {
			if err := g.runFlakes(ctx); err != nil {
				refused <- err
			}
		})
		err = g.start(ctx, &services, ready, refused, status)
	}
	if err == nil {
		err = g.attend(ctx, refused, status)
	}

	if err != nil {
		g.serving.Store(false)
	}

	// Leave first, so that no new requests come; then finish those that are here.
	g.draining.Store(true)
	g.beat(false)
	if err == nil {
		g.handOver()
	}
	if leaveErr := errors.Join(services.stop(), g.segments.close(), g.snowflakes.close(), g.flush()); leaveErr != nil {
		g.log.Warn("the queue groups could not be left in order", "error", leaveErr) // NATS is away
	}
	if err == nil { // a refused generator must not reserve for the requests that wait
		g.awaitRequests()
	}
	stopFloors()
	stopWork() // refuses what still waits
	stopFlakes()
	stopGuard()
	g.guard.end(time.Now())
	endLife()
	g.requests.close()
	g.tasks.close()
	if g.prepared.Load() { // so the start was told
		g.publish(g.nodeEvent("stopped"))
	}
	stopEvents()
	g.beat(true) // only now: until here a change of max_id waits for this generator
	// The last callbacks are answered from memory while the connection drains.
	if drainErr := g.cfg.Conn.Drain(); drainErr == nil {
		<-closed
	}
	if fileErr := g.flakes.Close(); fileErr != nil {
		g.log.Warn("the next start will rest for a moment", "error", fileErr)
	}
	return err
}

// background runs f until stop is called, which waits for its end.
func background(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// degradedDrain is how long requests wait at the end of a generator that has lost its
// embedded NATS server. Hardly any is answered, and the next start must not be late.
const degradedDrain = time.Second

// awaitRequests waits until all requests that were accepted are answered, for at most
// DrainTimeout.
func (g *Generator) awaitRequests() {
	most := g.cfg.DrainTimeout
	if g.degraded {
		most = min(most, degradedDrain)
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	g.requests.wait(ctx)
}

// publish queues an event.
func (g *Generator) publish(msg *nats.Msg) {
	if g.cfg.Observer != nil {
		g.cfg.Observer.Told(msg.Header[wire.HeaderType][0])
	}
	g.publisher.publish(msg)
}

func (g *Generator) nodeEvent(what string) *nats.Msg {
	msg := newEvent("node."+what, g.cfg.Node, g.cfg.Node,
		bus.NodeEvent{Node: g.cfg.Node, Version: g.cfg.Release, Address: g.cfg.Conn.ConnectedUrlRedacted(), Config: g.cfg.Describe})
	msg.Header[wire.HeaderStarted] = []string{g.made.UTC().Format(time.RFC3339Nano)}
	return msg
}

// respond answers a request outside its callback.
func (g *Generator) respond(reply string, body []byte) {
	if err := g.cfg.Conn.Publish(reply, body); err != nil {
		g.log.Debug("a reply cannot be sent", "error", err)
	}
}

// refuse answers a request outside its callback with an error.
func (g *Generator) refuse(reply string, a Answer, err error) {
	e := g.refused(a, err)
	if err := g.cfg.Conn.PublishMsg(errorMessage(e, reply)); err != nil {
		g.log.Debug("a reply cannot be sent", "error", err)
	}
}

package generator

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Config says how a [Generator] works. All fields are needed but those that have a default,
// NextServer, Numbers, Installation, Witness, Routes, NewInstallation, Tags, Ready and Observer.
type Config struct {
	// Conn is the connection to NATS. Its closed and error handlers must be set
	// before Run, which closes it in the end.
	Conn *nats.Conn
	JS   jetstream.JetStream
	// NextServer is the choice of Conn, see [nats.ReconnectToServer]; nil: the generator stays at
	// its NATS server.
	NextServer  *NextServer
	spreadAfter time.Duration // tests shorten it

	// Records keeps the records of all tags, and Numbers max_id of those in trend order; nil:
	// Records does.
	Records allocator.Records
	// Unwritable says why Records cannot be written; nil: as far as is known, they can. It must not
	// block. Default: always nil.
	Unwritable func() error
	Numbers    allocator.Numbers
	StoreKind  string // kv, mysql
	// Join enters the installation, and Open then opens Records. The generator retries
	// both until they succeed; an error that matches [allocator.ErrRefused] ends it. Before
	// Join creates an installation's record it calls mayCreate; if that fails it creates none.
	Join func(ctx context.Context, mayCreate func(context.Context) error) (Identity, error)
	Open func(context.Context) error
	// EndLoss ends a loss of all tags: [allocator.Records.Err] no longer matches
	// [allocator.ErrTagsLost].
	EndLoss func(context.Context) error
	// Address is where others reach the NATS server of Conn. Default: where Conn reaches it.
	Address func() string
	// NATSErr says why the NATS server that runs in this process does not keep its part of the
	// installation's state; nil: it does. It must not block. Default: always nil.
	NATSErr func() error
	// Checks return what is wrong around the generator; nil: nothing is. They are by the kind of
	// the finding: disk.low, replicas.few or folder.temporary. A check ends with its context.
	// Default: there are none.
	Checks map[string]func(context.Context) error
	// OpenEvents makes sure that the stream of events exists. It is called
	// again when the stream may have been deleted.
	OpenEvents func(context.Context) error

	// Snowflake says how snowflakes are made. Layout, Registry, File and Place
	// are needed; this package sets what connects it to other generators.
	Snowflake    snowflake.Config
	RegistryKind string // of workers: kv, zookeeper
	// Workers is the same registry for administration. It must be a handle of its own if
	// a handle remembers what it has read. Default: the registry.
	Workers snowflake.Registry
	// Installation is the one that the data folder belongs to; empty: none yet.
	Installation string
	// Witness is the installation that the data folder names, even if its worker may not be used;
	// empty: none. Until the generator has joined it, its heartbeats say so, and generators that
	// hear them create no other installation.
	Witness string
	// Routes returns the ID of the NATS server at each route of the one in this process, by host
	// and port. The ID is empty if no server answers. nil: there are no routes.
	Routes func(context.Context) map[string]string
	// NewInstallation allows a new installation beside witnesses, and while no generator is heard
	// from a route.
	NewInstallation bool

	Index     *allocator.Index
	LoadAhead bool          // the tags that were used in the last day
	Refresh   time.Duration // how often Numbers is compared with Records; default: allocator.DefaultRefresh
	Node      string        // name of the generator: [A-Za-z0-9_.-]{1,64}, in tokens that are not empty
	Log       *slog.Logger

	// Tags are created if they do not exist and never did.
	Tags []allocator.Tag

	// The bounds of the allocator; see its Config. MaxStep bounds also the step
	// that an operator may give a tag.
	MaxBatch   int64
	MaxWait    time.Duration
	MaxWaiting int64
	MaxStep    int64
	Outlast    time.Duration
	// DrainTimeout is how long a stop waits for the requests that still wait.
	DrainTimeout time.Duration

	// Keys are those of opaque tags.
	Keys Keys
	// Describe is the program's configuration without secrets, for the event of a start. Its http
	// is the address in the state.
	Describe map[string]string

	// Ready is called once, when the generator begins to answer requests.
	Ready func()

	// Observer is for metrics. Default: none.
	Observer Observer
}

// setDefaults sets the fields that have a default.
func (c *Config) setDefaults() {
	c.MaxWait = cmp.Or(c.MaxWait, allocator.DefaultMaxWait)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, allocator.DefaultMaxWaiting)
	c.MaxStep = cmp.Or(c.MaxStep, allocator.DefaultMaxStep)
	if c.Workers == nil {
		c.Workers = c.Snowflake.Registry
	}
	if c.Unwritable == nil {
		c.Unwritable = func() error { return nil }
	}
	if c.Address == nil {
		c.Address = c.Conn.ConnectedUrlRedacted
	}
	if c.NATSErr == nil {
		c.NATSErr = func() error { return nil }
	}
	if c.Snowflake.Clock == nil {
		c.Snowflake.Clock = snowflake.SystemClock()
	}
}

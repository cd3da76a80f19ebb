package snowflake

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// The defaults and limits of [Config].
const (
	DefaultMaxBack      = 5 * time.Millisecond
	DefaultMaxClockSkew = time.Second
	DefaultMaxClockWait = 5 * time.Second
	DefaultReserve      = 24 * time.Hour
	DefaultGrace        = 10 * time.Minute

	// LeastReserve is the shortest stretch of time that may be reserved ahead.
	LeastReserve = time.Second
)

const (
	// restAtStart is how far, in ms, the ceiling of the last run may be ahead of its clock. A start
	// may have to wait for that long. If it is further ahead, the clock went backwards since the
	// start compared it.
	restAtStart = ceilingAhead + slack
	// stalled is how far behind the ceiling may be, in ms, before that is a fault.
	stalled = 100
	// ending is how long before the end of the layout, in ms, an alert says so. A new layout must
	// last for longer.
	ending = 365 * 24 * 3_600_000
)

// Config says how a [Generator] works. Needed are Layout, Registry, File, Place,
// Node and LastWorker: zero values of the others are replaced by the defaults.
type Config struct {
	Layout   Layout
	Registry Registry
	File     *File
	Place    string         // of the data folder: package place names it
	Node     string         // name of the generator
	Clock    func() Reading // default: SystemClock
	Log      *slog.Logger   // default: slog.Default

	// FirstWorker and LastWorker bound which worker is taken; both are included.
	FirstWorker, LastWorker int64
	// HeldByPeer reports whether a peer, which is another running generator, says that it holds the
	// worker at this moment. Such a worker is not used even if the record is this generator's own:
	// one of the two has a clone of the other's file. Default: none does.
	HeldByPeer func(worker int64) bool
	// HeldByPeerLately reports whether a peer said lately that it holds the worker, or has just
	// lost it. Such a worker is not taken over, whatever the registry says: it may have been
	// restored from a backup. Default: none.
	HeldByPeerLately func(worker int64) bool
	// PeersKnown reports whether the peers have had time to say what they hold. Until then the
	// generator takes no worker but its own. Default: they have.
	PeersKnown func() bool
	// PeerClocks asks the peers for their clocks, and returns by how many ms each is ahead of this
	// machine's. It must be safe for concurrent use and return when its context is done. Default:
	// there are no peers.
	PeerClocks func(context.Context) []int64
	// Notify receives the events, mostly under a lock: it must neither block nor
	// call the generator. Default: they are dropped.
	Notify func(Event)

	Reserve time.Duration // most time that is reserved ahead
	Grace   time.Duration // what stays reserved after a clean stop
	MaxBack time.Duration // requests wait for a clock that went back by at most this much
	// a larger step forward is not trusted at once, nor at a start a clock that differs more from
	// its peers'
	MaxClockSkew time.Duration
	// at a start, a clock that is behind the last run by at most this much is waited for without an
	// alert
	MaxClockWait time.Duration
	MaxBatch     int64         // most IDs in one request
	MaxWait      time.Duration // longest wait of a request
	MaxWaiting   int64         // most requests that wait at a time

	random func(n int64) int64 // in [0, n); default: rand.Int64N
}

func (cfg Config) withDefaults() Config {
	if cfg.Clock == nil {
		cfg.Clock = SystemClock()
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.random == nil {
		cfg.random = rand.Int64N
	}
	if cfg.HeldByPeerLately == nil {
		cfg.HeldByPeerLately = func(int64) bool { return false }
	}
	if cfg.HeldByPeer == nil {
		cfg.HeldByPeer = func(int64) bool { return false }
	}
	if cfg.PeersKnown == nil {
		cfg.PeersKnown = func() bool { return true }
	}
	if cfg.PeerClocks == nil {
		cfg.PeerClocks = func(context.Context) []int64 { return nil }
	}
	if cfg.Notify == nil {
		cfg.Notify = func(Event) {}
	}
	cfg.Reserve = cmp.Or(cfg.Reserve, DefaultReserve)
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	cfg.MaxBack = cmp.Or(cfg.MaxBack, DefaultMaxBack)
	cfg.MaxClockSkew = cmp.Or(cfg.MaxClockSkew, DefaultMaxClockSkew)
	cfg.MaxClockWait = cmp.Or(cfg.MaxClockWait, DefaultMaxClockWait)
	cfg.MaxBatch = cmp.Or(cfg.MaxBatch, allocator.DefaultMaxBatch)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, allocator.DefaultMaxWait)
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, allocator.DefaultMaxWaiting)
	return cfg
}

package allocator

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"
)

// Defaults and bounds of [Config].
const (
	DefaultMaxBatch   = 1_000_000
	DefaultMaxWait    = 3 * time.Second
	DefaultMaxWaiting = 100_000
	DefaultOutlast    = 15 * time.Minute
	DefaultMaxStep    = 50_000_000 // ten minutes at 80,000 IDs a second

	// The product of these two must not come near the largest int64.
	LimitMaxBatch   = 1_000_000_000
	LimitMaxWaiting = 10_000_000
)

const (
	// attemptTimeout bounds one write to the store. A request waits for less, so
	// a slow store still completes its refills.
	attemptTimeout = 5 * time.Second
	// The pause after a failed write doubles from first to last, with jitter.
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
	// The pause after a conflict with another generator is random, up to
	// firstRace, doubled to lastRace.
	firstRace = time.Millisecond
	lastRace  = 50 * time.Millisecond
	// flushEvery is how often the marks that were heard of are written into their file.
	flushEvery = 3 * time.Second
	// maxUnknown is how many tags may fail before those that were never loaded leave memory.
	maxUnknown = 1000
	// maxHeard bounds the ranges of other generators that are compared with one answer of the
	// store.
	maxHeard = 1000
	// maxRefills bounds the writes to the store that are under way at once.
	maxRefills = 64
	// maxLocked bounds those of them for tags whose record was locked at the last
	// attempt. Each of these waits for long and would keep other tags from the store.
	maxLocked = 8
	// maxLogged bounds the names in one line of the log.
	maxLogged = 20
)

// Config configures an [Allocator]. Only Records is required: zero values are
// replaced by the defaults.
type Config struct {
	Records Records
	Numbers Numbers      // of tags in trend order; default: the records alone
	Keys    Keys         // of opaque tags; default: there are none
	Index   *Index       // default: in memory
	Node    string       // the generator, in its claims
	Run     string       // of the generator: each start has another one; default: a random one
	Log     *slog.Logger // default: slog.Default

	// LoadAhead makes [Allocator.Run] load the tags of which a range was claimed in the last day.
	LoadAhead bool
	// Pace waits before each of them while their events wait to be published. Default: no wait.
	Pace func(context.Context)
	// Refresh is how often the rows of Numbers are compared with the records. Default:
	// DefaultRefresh.
	Refresh time.Duration
	// Leads reports whether this generator does that, for all of them. Default: it does.
	Leads func() bool

	// Notify receives the events, those of one tag in their order. It is called under a lock, by
	// several goroutines at once: it must neither block nor call the allocator. Default: none.
	Notify func(Event)

	// Push is called with each record that was written, before an ID of it is handed out: the other
	// generators must hear of it, see [Allocator.Push]. Records of claims of strict tags come from
	// the watch alone. Without a revision, only its last range counts. Several goroutines call it.
	// Default: none.
	Push func(Stored)

	// Ask asks all other generators that are heard what they know of a tag that has no record.
	// Several goroutines call it. Default: nothing is known.
	Ask func(ctx context.Context, tag string) (Known, error)

	// Starting is why tags may not be known yet; nil: all are. Until then no request hears that a
	// tag is unknown. Default: nil.
	Starting func() error

	// PassOn asks the generator with this run to claim n IDs of a strict tag, with
	// [Allocator.RequestForPeer], and returns them: one range of exactly n, claimed after the call
	// began. Several goroutines call it. Default: it always fails.
	PassOn func(ctx context.Context, run, tag string, n int64) (Range, error)

	MaxBatch   int64         // most IDs in one request
	MaxWait    time.Duration // longest wait for a segment
	MaxWaiting int64         // most requests that wait at a time
	MaxStep    int64         // largest step that adaptation reaches

	// Outlast is how long the IDs of a tag in memory should last at its present rate, so that it
	// outlasts a store that is away. The step grows until a segment lasts at least as long, and
	// shrinks when one lasts twice as long. A tag may have its own.
	Outlast time.Duration
}

func (cfg Config) withDefaults() Config {
	if cfg.Index == nil {
		cfg.Index = NewIndex()
	}
	if cfg.Keys == nil {
		cfg.Keys = noKeys{}
	}
	cfg.Run = cmp.Or(cfg.Run, rand.Text())
	cfg.Refresh = cmp.Or(cfg.Refresh, DefaultRefresh)
	if cfg.Leads == nil {
		cfg.Leads = func() bool { return true }
	}
	if cfg.Ask == nil {
		cfg.Ask = func(context.Context, string) (Known, error) { return Known{}, nil }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Notify == nil {
		cfg.Notify = func(Event) {}
	}
	if cfg.Starting == nil {
		cfg.Starting = func() error { return nil }
	}
	if cfg.Push == nil {
		cfg.Push = func(Stored) {}
	}
	if cfg.PassOn == nil {
		cfg.PassOn = func(context.Context, string, string, int64) (Range, error) { return Range{}, errors.ErrUnsupported }
	}
	cfg.MaxBatch = min(cmp.Or(cfg.MaxBatch, DefaultMaxBatch), LimitMaxBatch)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, DefaultMaxWait)
	cfg.MaxWaiting = min(cmp.Or(cfg.MaxWaiting, DefaultMaxWaiting), LimitMaxWaiting)
	cfg.MaxStep = cmp.Or(cfg.MaxStep, DefaultMaxStep)
	cfg.Outlast = cmp.Or(cfg.Outlast, DefaultOutlast)
	return cfg
}

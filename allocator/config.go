package allocator

import (
	"cmp"
	"context"
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
	// regressedPause is how often, on average, the record of a regressed tag is read.
	regressedPause = 5 * time.Second
	// maxUnknown is how many tags may fail before those that were never loaded leave memory.
	maxUnknown = 1000
	// maxHeard bounds the ranges of other generators that are compared with one answer of the store.
	maxHeard = 1000
	// maxRefills bounds the writes to the store that are under way at once.
	maxRefills = 64
	// maxLocked bounds those of them for tags whose record was locked at the last
	// attempt. Each of these waits for long and would keep other tags from the store.
	maxLocked = 8
	// maxUnknownAlerts bounds the never-loaded tags that raise alerts at a time. Callers can
	// ask for any name while the store is away, and would hide the alerts that count.
	maxUnknownAlerts = 20
)

// Config configures an [Allocator]. Only Store is required: zero values are
// replaced by the defaults.
type Config struct {
	Store Store
	Marks *Marks       // default: in memory
	Log   *slog.Logger // default: slog.Default

	// Recent is the file of the tags that were used in the last day, which
	// [Allocator.Run] loads ahead. Default: none.
	Recent string

	// Notify receives the events, those of one tag in their order. It is called
	// under a lock, by several goroutines at once: it must neither block nor call
	// the allocator. Default: none.
	Notify func(Event)

	// Reserved is called with each range that was reserved, before an ID of it is handed
	// out, and with a range in memory that another generator holds too: the other generators
	// must hear of it, see [Allocator.Reserved]. Several goroutines call it. Default: none.
	Reserved func(tag string, r Range)

	// PassOn asks the generator with this name to claim n IDs of a strict tag, with [Allocator.RequestForPeer], and returns
	// them: one range of exactly n, claimed after the call began. Several goroutines call it. Default: it always fails.
	PassOn func(ctx context.Context, node, tag string, n int64) (Range, error)

	MaxBatch   int64         // most IDs in one request
	MaxWait    time.Duration // longest wait for a segment
	MaxWaiting int64         // most requests that wait at a time
	MaxStep    int64         // largest step that adaptation reaches; a tag may have its own

	// Outlast is how long the IDs of a tag in memory should last at its present rate, so that it outlasts a store that is away.
	// The step grows until a segment lasts at least as long, and shrinks when one lasts twice as long. A tag may have its own.
	Outlast time.Duration
}

func (cfg Config) withDefaults() Config {
	if cfg.Marks == nil {
		cfg.Marks = NewMarks()
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Notify == nil {
		cfg.Notify = func(Event) {}
	}
	if cfg.Reserved == nil {
		cfg.Reserved = func(string, Range) {}
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

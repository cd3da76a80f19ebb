package allocator

import (
	"cmp"
	"context"
	"log/slog"
	"time"
)

// Defaults and bounds of [Config].
const (
	DefaultMaxBatch   = 1_000_000
	DefaultMaxWait    = 3 * time.Second
	DefaultMaxWaiting = 100_000
	DefaultMaxStep    = 50_000_000 // ten minutes at 80,000 IDs a second

	// LimitMaxBatch and LimitMaxWaiting bound the two: their product must not
	// come near the largest int64.
	LimitMaxBatch   = 1_000_000_000
	LimitMaxWaiting = 10_000_000
)

const (
	// attemptTimeout bounds one write to the store. It is longer than a request
	// waits, so that a slow store still gets its refills done.
	attemptTimeout = 5 * time.Second
	// Pauses after a failed write: doubled from first to last, with jitter.
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
	// Pauses before the store is asked again because others were ahead: random
	// times up to firstRace, doubled to lastRace.
	firstRace = time.Millisecond
	lastRace  = 50 * time.Millisecond
	// regressedPause is how often, on average, a store that went backwards is
	// looked at.
	regressedPause = 5 * time.Second
	// maxStrangers is how many tags may fail before those that were never loaded
	// are forgotten.
	maxStrangers = 1000
	// maxRefills bounds the writes to the store that are under way at once.
	maxRefills = 64
	// maxLocked bounds those of them for tags whose record was locked the last
	// time: each waits for long, and they would keep the others from the store.
	maxLocked = 8
	// maxStrange bounds the tags that were never loaded and whose trouble is
	// told at a time: callers may ask for any name while the store, which would
	// know, is away, and nobody could find the alerts that count.
	maxStrange = 20
)

// Config says how an [Allocator] works. Only Store is needed: zero values are
// replaced by the defaults.
type Config struct {
	Store Store
	Marks *Marks       // default: in memory
	Log   *slog.Logger // default: slog.Default

	// Recent is the file of the tags that were used in the last day, which
	// [Allocator.Run] loads ahead. Default: none.
	Recent string

	// Notify is told of events, in the order of each tag, under a lock and
	// possibly from several goroutines at once: it must neither block nor call
	// the allocator. Default: nobody.
	Notify func(Event)

	// Evidence is called before each write to the store. When it returns, Marks
	// hold what can be known of other generators' ranges; held tells after the
	// write whether they did all the while. An error postpones the write.
	// Default: none.
	Evidence func(context.Context) (held func() bool, err error)

	MaxBatch   int64         // most IDs in one request
	MaxWait    time.Duration // longest wait for a segment
	MaxWaiting int64         // most requests that wait at a time
	MaxStep    int64         // largest step that adaptation reaches
}

func (cfg Config) withDefaults() Config {
	if cfg.Marks == nil {
		cfg.Marks = NewMarks()
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Notify == nil {
		cfg.Notify = func(Event) {}
	}
	if cfg.Evidence == nil {
		cfg.Evidence = func(context.Context) (func() bool, error) { return func() bool { return true }, nil }
	}
	cfg.MaxBatch = min(cmp.Or(cfg.MaxBatch, DefaultMaxBatch), LimitMaxBatch)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, DefaultMaxWait)
	cfg.MaxWaiting = min(cmp.Or(cfg.MaxWaiting, DefaultMaxWaiting), LimitMaxWaiting)
	cfg.MaxStep = cmp.Or(cfg.MaxStep, DefaultMaxStep)
	return cfg
}

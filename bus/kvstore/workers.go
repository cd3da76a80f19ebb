package kvstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// Workers keeps the records of workers in the bucket LEAF_WORKERS, a key each,
// as the JSON of [snowflake.Record]; the version is the key's revision. It
// implements [snowflake.Registry].
//
// The first call opens the bucket. If the bucket is lost, one call fails, and the next
// one makes an empty bucket. An error that matches [snowflake.ErrRefused] will stay.
type Workers struct {
	cfg Config

	kv atomic.Pointer[jetstream.KeyValue] // nil: not open

	mu     sync.Mutex
	known  map[int64]snowflake.Entry // as last read or written, by worker
	logged map[string]uint64         // the revision of each damaged record that was logged
}

var _ snowflake.Registry = (*Workers)(nil)

// NewWorkers returns a registry that has not asked for its bucket yet.
func NewWorkers(cfg Config) *Workers {
	return &Workers{cfg: cfg, known: make(map[int64]snowflake.Entry), logged: make(map[string]uint64)}
}

func openWorkers(ctx context.Context, cfg Config) (jetstream.KeyValue, error) {
	return openBucket(ctx, cfg, wire.BucketWorkers, "Leafbus: who holds which worker ID, and until when", smallBytes)
}

func (w *Workers) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if kv := w.kv.Load(); kv != nil {
		return *kv, nil
	}
	kv, err := openWorkers(ctx, w.cfg)
	if errors.Is(err, allocator.ErrRefused) {
		err = fmt.Errorf("%w: %w", snowflake.ErrRefused, err)
	}
	if err != nil {
		return nil, err
	}
	w.kv.Store(&kv)
	return kv, nil
}

// failed returns err. If the error says that the bucket is missing, the next call opens
// it again.
func (w *Workers) failed(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		w.kv.Store(nil)
	}
	return err
}

// List implements [snowflake.Registry]. It logs each damaged record once.
func (w *Workers) List(ctx context.Context) ([]snowflake.Entry, error) {
	if _, err := w.bucket(ctx); err != nil {
		return nil, err
	}
	records, err := readOnce(ctx, w.cfg, wire.BucketWorkers, make(map[string]bool), func(string, int, int) {})
	if err != nil {
		return nil, fmt.Errorf("reading the workers' records: %w", w.failed(err))
	}
	var entries []snowflake.Entry
	for _, record := range records {
		if record.Removed {
			continue // by hand
		}
		e, err := decodeWorker(record.Key, record.Value, record.revision)
		if err != nil {
			w.damaged(record.Key, record.revision, err)
			continue
		}
		w.know(e)
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(x, y snowflake.Entry) int { return cmp.Compare(x.Worker, y.Worker) })
	return entries, nil
}

// know remembers the record of a version.
func (w *Workers) know(e snowflake.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[e.Worker] = e
}

// unchanged reports whether the bucket still has the record that had this version when
// it was read or written. Comparing revisions is not enough: a bucket that was made again,
// or restored, uses the same ones again.
func (w *Workers) unchanged(ctx context.Context, kv jetstream.KeyValue, worker int64, version uint64) (bool, error) {
	w.mu.Lock()
	known := w.known[worker]
	w.mu.Unlock()
	entry, err := kv.Get(ctx, workerKey(worker))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	e, err := decodeWorker(entry.Key(), entry.Value(), entry.Revision())
	if err != nil {
		return false, nil // damaged, or not written by a generator
	}
	return e.Version == version && (known.Version != version || e == known), nil
}

// damaged logs a record that cannot be read, once.
func (w *Workers) damaged(key string, revision uint64, err error) {
	w.mu.Lock()
	known := w.logged[key] == revision
	w.logged[key] = revision
	w.mu.Unlock()
	if !known {
		w.cfg.log().Error("a worker's record is damaged: no generator can take this worker until its key is deleted",
			"error", err)
	}
}

// Add implements [snowflake.Registry]. It begins at a random worker, so that
// generators that start together seldom want the same one.
func (w *Workers) Add(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	entries, err := w.List(ctx)
	if err != nil {
		return snowflake.Entry{}, err
	}
	kv, err := w.bucket(ctx)
	if err != nil {
		return snowflake.Entry{}, err
	}
	listed := make(map[int64]bool)
	for _, e := range entries {
		listed[e.Worker] = true
	}
	n := c.Last - c.First + 1
	for i, start := int64(0), rand.Int64N(max(1, n)); i < n; i++ {
		r.Worker = c.First + (start+i)%n
		if listed[r.Worker] || !c.Allows(r.Worker) {
			continue
		}
		record, err := json.Marshal(r)
		if err != nil {
			return snowflake.Entry{}, err
		}
		version, err := kv.Create(ctx, workerKey(r.Worker), record) // also if the key was deleted by hand
		switch {
		case err == nil:
			e := snowflake.Entry{Record: r, Version: version}
			w.know(e)
			return e, nil
		case !mismatch(err):
			return snowflake.Entry{}, fmt.Errorf("adding the record of worker %d: %w", r.Worker,
				failedWrite(w.failed(err)))
		}
	}
	return snowflake.Entry{}, fmt.Errorf("%w: of %d to %d none is free", snowflake.ErrFull, c.First, c.Last)
}

// Put implements [snowflake.Registry] with one compare-and-set, after a look at
// what it would replace.
func (w *Workers) Put(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
	if version == 0 { // would make the key
		return 0, fmt.Errorf("%w: worker %d has no version 0", snowflake.ErrConflict, r.Worker)
	}
	kv, err := w.bucket(ctx)
	if err != nil {
		return 0, err
	}
	record, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	same, err := w.unchanged(ctx, kv, r.Worker, version)
	if err != nil {
		return 0, fmt.Errorf("reading the record of worker %d: %w", r.Worker, w.failed(err))
	}
	if !same {
		return 0, fmt.Errorf("%w: worker %d", snowflake.ErrConflict, r.Worker)
	}
	version, err = kv.Update(ctx, workerKey(r.Worker), record, version)
	switch {
	case mismatch(err):
		return 0, fmt.Errorf("%w: worker %d", snowflake.ErrConflict, r.Worker)
	case err != nil:
		return 0, fmt.Errorf("writing the record of worker %d: %w", r.Worker, failedWrite(w.failed(err)))
	}
	w.know(snowflake.Entry{Record: r, Version: version})
	return version, nil
}

// mismatch reports whether a write was refused because the key has another revision.
// The library's own errors for that do not cover all cases.
func mismatch(err error) bool {
	c := code(err)
	return c == jetstream.JSErrCodeStreamWrongLastSequence || c == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

func workerKey(worker int64) string { return strconv.FormatInt(worker, 10) }

// decodeWorker reads a record. A record that this package cannot have written is an
// error: a guess could give a worker to two generators.
func decodeWorker(key string, data []byte, revision uint64) (snowflake.Entry, error) {
	var r snowflake.Record
	if err := json.Unmarshal(data, &r); err != nil {
		return snowflake.Entry{}, fmt.Errorf("key %s: %w", key, err)
	}
	if workerKey(r.Worker) != key || r.Worker < 0 || r.Incarnation == "" || r.ReservedUntil <= 0 {
		return snowflake.Entry{}, fmt.Errorf("key %s: %.200q", key, data)
	}
	return snowflake.Entry{Record: r, Version: revision}, nil
}

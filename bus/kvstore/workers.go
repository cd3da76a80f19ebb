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

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// Workers keeps the records of workers in the bucket LEAF_WORKERS, a key each, as the JSON of
// [snowflake.Record]; the version is the key's revision. It implements [snowflake.Registry].
//
// It looks the bucket up for each call, and makes it if it is missing. An error that matches
// [snowflake.ErrRefused] will stay.
type Workers struct {
	cfg Config

	mu     sync.Mutex
	known  map[int64]snowflake.Entry // as last read or written, by worker
	logged map[string]uint64         // the revision of each damaged record that was logged
}

var _ snowflake.Registry = (*Workers)(nil)

// NewWorkers returns a registry that has not asked for its bucket yet.
func NewWorkers(cfg Config) *Workers {
	return &Workers{cfg: cfg, known: make(map[int64]snowflake.Entry), logged: make(map[string]uint64)}
}

// List implements [snowflake.Registry]. It logs each damaged record once.
func (w *Workers) List(ctx context.Context) ([]snowflake.Entry, error) {
	b, err := open(ctx, w.cfg, wire.BucketWorkers)
	if err != nil {
		return nil, err
	}
	entries, _, err := w.list(ctx, b)
	return entries, err
}

// list returns all records, and the revision of each key that was deleted by hand.
func (w *Workers) list(
	ctx context.Context, b bucket,
) (entries []snowflake.Entry, deleted map[string]uint64, err error) {
	records, err := b.read(ctx, make(map[string]bool), func(string, int, int) {})
	if err != nil {
		return nil, nil, fmt.Errorf("reading the workers' records: %w", err)
	}
	deleted = make(map[string]uint64)
	for _, r := range records {
		if len(r.Value) == 0 {
			deleted[r.Key] = r.revision
			continue
		}
		e, err := decodeWorker(r)
		if err != nil {
			w.damaged(r, err)
			continue
		}
		w.know(e)
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(x, y snowflake.Entry) int { return cmp.Compare(x.Worker, y.Worker) })
	return entries, deleted, nil
}

// know remembers the record of a version.
func (w *Workers) know(e snowflake.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[e.Worker] = e
}

// unchanged reports whether the bucket still has the record that had this version when it was read
// or written. Comparing revisions is not enough: a bucket that was restored from a snapshot uses
// the same ones again.
func (w *Workers) unchanged(ctx context.Context, b bucket, worker int64, version uint64) (bool, error) {
	w.mu.Lock()
	known := w.known[worker]
	w.mu.Unlock()
	r, err := b.get(ctx, workerKey(worker))
	if err != nil {
		return false, err
	}
	e, err := decodeWorker(r)
	if err != nil {
		return false, nil // deleted or damaged by hand
	}
	return e.Version == version && (known.Version != version || e == known), nil
}

// damaged logs a record that cannot be read, once.
func (w *Workers) damaged(r Record, err error) {
	w.mu.Lock()
	known := w.logged[r.Key] == r.revision
	w.logged[r.Key] = r.revision
	w.mu.Unlock()
	if !known {
		w.cfg.log().Error("a worker's record is damaged: no generator can take this worker until its key is deleted",
			"error", err)
	}
}

// Add implements [snowflake.Registry]. It begins at a random worker, so that
// generators that start together seldom want the same one.
func (w *Workers) Add(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	b, err := open(ctx, w.cfg, wire.BucketWorkers)
	if err != nil {
		return snowflake.Entry{}, err
	}
	entries, deleted, err := w.list(ctx, b)
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
		version, err := w.put(ctx, b, r, deleted[workerKey(r.Worker)])
		switch {
		case err == nil:
			return snowflake.Entry{Record: r, Version: version}, nil
		case !errors.Is(err, snowflake.ErrConflict): // a conflict: its record is new, or damaged
			return snowflake.Entry{}, err
		}
	}
	return snowflake.Entry{}, fmt.Errorf("%w: of %d to %d none is free", snowflake.ErrFull, c.First, c.Last)
}

// put writes a record by compare-and-set.
func (w *Workers) put(ctx context.Context, b bucket, r snowflake.Record, version uint64) (uint64, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	version, err = b.put(ctx, workerKey(r.Worker), value, version)
	switch {
	case errors.Is(err, allocator.ErrConflict):
		return 0, fmt.Errorf("%w: worker %d", snowflake.ErrConflict, r.Worker)
	case err != nil:
		return 0, fmt.Errorf("writing the record of worker %d: %w", r.Worker, err)
	}
	w.know(snowflake.Entry{Record: r, Version: version})
	return version, nil
}

// Put implements [snowflake.Registry] with one compare-and-set, after a look at
// what it would replace.
func (w *Workers) Put(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
	if version == 0 { // would make the key
		return 0, fmt.Errorf("%w: worker %d has no version 0", snowflake.ErrConflict, r.Worker)
	}
	b, err := open(ctx, w.cfg, wire.BucketWorkers)
	if err != nil {
		return 0, err
	}
	same, err := w.unchanged(ctx, b, r.Worker, version)
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading the record of worker %d: %w", r.Worker, err)
	case !same:
		return 0, fmt.Errorf("%w: worker %d", snowflake.ErrConflict, r.Worker)
	}
	return w.put(ctx, b, r, version)
}

func workerKey(worker int64) string { return strconv.FormatInt(worker, 10) }

// decodeWorker reads a record. A record that this package cannot have written is an
// error: a guess could give a worker to two generators.
func decodeWorker(r Record) (snowflake.Entry, error) {
	e := snowflake.Entry{Version: r.revision}
	if err := json.Unmarshal(r.Value, &e.Record); err != nil {
		return snowflake.Entry{}, fmt.Errorf("key %s: %w", r.Key, err)
	}
	if workerKey(e.Worker) != r.Key || e.Worker < 0 || e.Incarnation == "" || e.ReservedUntil <= 0 {
		return snowflake.Entry{}, fmt.Errorf("key %s: %.200q", r.Key, r.Value)
	}
	return e, nil
}

package snowflaketest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/leafbus/leafbus/snowflake"
)

// Memory is a [snowflake.Registry] in memory, for simulations and for tests that
// need faults which a real server cannot be made to show. It passes [Run] like
// the real ones. Nothing in it is random: Add takes the lowest worker that is
// free. Copies of the pointer are handles on the same state.
type Memory struct {
	mu      sync.Mutex
	entries map[int64]snowflake.Entry
	version uint64 // of the last write; never given again, not even after Restore and Wipe
}

// NewMemory returns an empty registry.
func NewMemory() *Memory { return &Memory{entries: make(map[int64]snowflake.Entry)} }

var _ snowflake.Registry = (*Memory)(nil)

// Snapshot returns what the registry has now, for [Memory.Restore].
func (m *Memory) Snapshot() map[int64]snowflake.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.entries)
}

// Restore sets the registry back to a snapshot, as an operator with a backup does.
func (m *Memory) Restore(snapshot map[int64]snowflake.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries = maps.Clone(snapshot)
}

// Wipe removes all records, as an operator does by deleting the bucket.
func (m *Memory) Wipe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.entries)
}

// List implements [snowflake.Registry].
func (m *Memory) List(ctx context.Context) ([]snowflake.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.entries),
		func(x, y snowflake.Entry) int { return cmp.Compare(x.Worker, y.Worker) }), nil
}

// Add implements [snowflake.Registry].
func (m *Memory) Add(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	if err := ctx.Err(); err != nil {
		return snowflake.Entry{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for r.Worker = c.First; r.Worker <= c.Last; r.Worker++ {
		if _, ok := m.entries[r.Worker]; !ok && c.Allows(r.Worker) {
			return m.putLocked(r), nil
		}
	}
	return snowflake.Entry{}, snowflake.ErrFull
}

// Put implements [snowflake.Registry].
func (m *Memory) Put(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.entries[r.Worker]; !ok || e.Version != version {
		return 0, snowflake.ErrConflict
	}
	return m.putLocked(r).Version, nil
}

func (m *Memory) putLocked(r snowflake.Record) snowflake.Entry {
	m.version++
	e := snowflake.Entry{Record: r, Version: m.version}
	m.entries[r.Worker] = e
	return e
}

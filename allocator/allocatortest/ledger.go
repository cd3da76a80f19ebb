package allocatortest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/leafbus/leafbus/allocator"
)

// MemoryLedger is an [allocator.Ledger] in memory. Its revisions count the writes of all tags, as
// those of a KV bucket do. Copies of the pointer are handles on the same state.
type MemoryLedger struct {
	mu      sync.Mutex
	entries map[string]allocator.Entry
	last    uint64 // the highest revision
}

// NewMemoryLedger returns an empty ledger.
func NewMemoryLedger() *MemoryLedger {
	return &MemoryLedger{entries: make(map[string]allocator.Entry)}
}

var _ allocator.Ledger = (*MemoryLedger)(nil)

// Snapshot returns what the ledger has now, for [MemoryLedger.Restore].
func (l *MemoryLedger) Snapshot() map[string]allocator.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.entries)
}

// Restore sets the ledger back to a snapshot, as an operator with a backup does. From then on
// revisions go on from the highest of the snapshot: one that was read before may come again
// with another record.
func (l *MemoryLedger) Restore(snapshot map[string]allocator.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.last = make(map[string]allocator.Entry), 0
	for tag, e := range snapshot {
		l.entries[tag] = e
		l.last = max(l.last, e.Revision)
	}
}

// Read implements [allocator.Ledger].
func (l *MemoryLedger) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	if err := ctx.Err(); err != nil {
		return allocator.Entry{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[tag], nil
}

// Write implements [allocator.Ledger].
func (l *MemoryLedger) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.entries[tag].Revision; now != e.Revision {
		return 0, fmt.Errorf("%w: the record of %s has revision %d, not %d", allocator.ErrConflict, tag, now, e.Revision)
	}
	l.last++
	e.Revision = l.last
	l.entries[tag] = e
	return e.Revision, nil
}

// Each implements [allocator.Ledger]. It calls f in the order of names.
func (l *MemoryLedger) Each(ctx context.Context, f func(tag string, e allocator.Entry)) error {
	entries := l.Snapshot()
	for _, tag := range slices.Sorted(maps.Keys(entries)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		f(tag, entries[tag])
	}
	return nil
}

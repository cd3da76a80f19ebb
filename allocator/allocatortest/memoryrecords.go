package allocatortest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/leafbus/leafbus/allocator"
)

// MemoryRecords is an [allocator.Records] in memory, which passes [RunRecords] like the real ones.
// Its methods wait only for channels, so virtual time works. Revisions count the writes of all
// tags, as those of a bucket in JetStream do.
type MemoryRecords struct {
	*bucket

	// Under the bucket's lock.
	syncs []chan struct{} // closed when a watch has begun again
}

// bucket is what all handles share.
type bucket struct {
	mu      sync.Mutex
	records map[string]allocator.Update
	last    uint64        // the highest revision
	log     []written     // all writes of this epoch, in order
	epoch   int           // grows with each loss and each restore
	changed chan struct{} // closed and renewed when a watch must look again
	err     error
}

type written struct {
	tag      string
	revision uint64
}

var _ allocator.Records = (*MemoryRecords)(nil)

// NewMemoryRecords returns a handle on an empty store of records.
func NewMemoryRecords() *MemoryRecords {
	return &MemoryRecords{bucket: &bucket{records: make(map[string]allocator.Update), changed: make(chan struct{})}}
}

// Open returns a new handle on the same records, as another generator has it. Each handle has its
// own watch.
func (m *MemoryRecords) Open() *MemoryRecords { return &MemoryRecords{bucket: m.bucket} }

// Load implements [allocator.Records].
func (m *MemoryRecords) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	if err := ctx.Err(); err != nil {
		return allocator.Stored{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.records[tag]
	return u.Stored, u.Problem
}

// Swap implements [allocator.Records].
func (m *MemoryRecords) Swap(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.records[t.Name].Revision; now != revision {
		return 0, fmt.Errorf("%w: the record of %s has revision %d, not %d", allocator.ErrConflict, t.Name, now,
			revision)
	}
	return m.putLocked(allocator.Update{Stored: allocator.Stored{Tag: t}}), nil
}

// Spoil makes the record of a tag one that cannot be used, as a hand in the bucket might. The
// problem is [allocator.ErrDamaged] or [allocator.ErrNewer].
func (m *MemoryRecords) Spoil(tag string, problem error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putLocked(allocator.Update{Stored: allocator.Stored{Tag: allocator.Tag{Name: tag}}, Problem: problem})
}

func (b *bucket) putLocked(u allocator.Update) uint64 {
	b.last++
	u.Revision = b.last
	b.records[u.Name] = u
	b.log = append(b.log, written{u.Name, u.Revision})
	b.wakeLocked()
	return u.Revision
}

// wakeLocked lets all watches look again.
func (b *bucket) wakeLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Watch implements [allocator.Records].
func (m *MemoryRecords) Watch(ctx context.Context, f func(allocator.Update)) error {
	epoch, seen := -1, 0
	for {
		m.mu.Lock()
		var updates []allocator.Update
		synced := m.syncs
		if epoch != m.epoch || len(synced) > 0 {
			for _, u := range m.records {
				u.First = true
				updates = append(updates, u)
			}
			slices.SortFunc(updates, func(x, y allocator.Update) int { return cmp.Compare(x.Revision, y.Revision) })
		} else {
			for _, w := range m.log[seen:] {
				if u := m.records[w.tag]; u.Revision == w.revision { // else a later write of the log has it
					updates = append(updates, u)
				}
			}
		}
		m.syncs, epoch, seen = nil, m.epoch, len(m.log)
		changed := m.changed
		m.mu.Unlock()

		for _, u := range updates {
			if ctx.Err() != nil {
				break
			}
			f(u)
		}
		if ctx.Err() == nil {
			for _, s := range synced {
				close(s)
			}
			select {
			case <-ctx.Done():
			case <-changed:
				continue
			}
			synced = nil
		}
		m.mu.Lock()
		m.syncs = append(m.syncs, synced...) // the next watch is theirs
		m.mu.Unlock()
		return fmt.Errorf("watching: %w", ctx.Err())
	}
}

// Sync implements [allocator.Records].
func (m *MemoryRecords) Sync(ctx context.Context) error {
	done := make(chan struct{})
	m.mu.Lock()
	m.syncs = append(m.syncs, done)
	m.wakeLocked()
	m.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}

// Err implements [allocator.Records]. It returns what SetErr was given.
func (m *MemoryRecords) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// SetErr sets what Err returns.
func (m *MemoryRecords) SetErr(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// Snapshot returns the records as they are, tombstones included, without those that cannot be used.
func (m *MemoryRecords) Snapshot() map[string]allocator.Stored {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make(map[string]allocator.Stored)
	for tag, u := range m.records {
		if u.Problem == nil {
			found[tag] = u.Stored
		}
	}
	return found
}

// Restore sets the records back to a snapshot, as an operator with a backup of the stream does.
// From then on revisions go on from the highest of the snapshot: one that was read before may come
// again with another record. Every watch begins again.
func (m *MemoryRecords) Restore(snapshot map[string]allocator.Stored) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.records)
	m.last, m.log = 0, nil
	for tag, s := range snapshot {
		m.records[tag] = allocator.Update{Stored: s}
		m.last = max(m.last, s.Revision)
	}
	m.epoch++
	m.wakeLocked()
}

// Lose removes all records, as a bucket that was removed and made again. New revisions are above
// all earlier ones.
func (m *MemoryRecords) Lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.records)
	m.last, m.log = m.last+1_000_000, nil
	m.epoch++
	m.wakeLocked()
}

// Names returns the names of all records, in order.
func (m *MemoryRecords) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.records))
}

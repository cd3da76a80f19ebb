package allocatortest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// Memory is a [allocator.Store] in memory, for tests that need faults which a
// real server cannot be made to show. It passes [Run] like the real ones.
// Copies of the pointer are handles on the same state.
type Memory struct {
	mu      sync.Mutex
	tags    map[string]allocator.Tag
	changed chan struct{} // closed and renewed with each change
	log     []string      // the tag of each change, in order
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{tags: make(map[string]allocator.Tag), changed: make(chan struct{})}
}

var _ allocator.Store = (*Memory)(nil)

// Snapshot returns what the store has now, for [Memory.Restore].
func (m *Memory) Snapshot() map[string]allocator.Tag {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.tags)
}

// Restore sets the store back to a snapshot, as an operator with a backup does.
func (m *Memory) Restore(snapshot map[string]allocator.Tag) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tags = maps.Clone(snapshot)
}

// Reserve implements [allocator.Store].
func (m *Memory) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	if err := ctx.Err(); err != nil {
		return allocator.Grant{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.getLocked(tag)
	if err != nil {
		return allocator.Grant{}, err
	}
	if t.Paused {
		return allocator.Grant{}, &allocator.PausedError{Rules: t.Rules}
	}
	if was := t.MaxID; was < from {
		t.MaxID = from
		m.putLocked(t)
		return allocator.Grant{}, &allocator.AdvancedError{Tag: tag, Got: was, Seen: from}
	}
	left := t.Left(t.MaxID)
	if left < n {
		return allocator.Grant{}, allocator.ErrExhausted
	}
	n = min(max(n, t.Step), left)
	g := allocator.Grant{Range: allocator.Range{First: t.MaxID, Last: t.MaxID + n - 1}, Step: max(t.Step, 1), Order: t.Order, Rules: t.Rules,
		Ending: !t.Ending(t.MaxID) && t.Ending(t.MaxID+n)}
	t.MaxID += n
	m.putLocked(t)
	return g, nil
}

// Get implements [allocator.Store].
func (m *Memory) Get(_ context.Context, tag string) (allocator.Tag, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.getLocked(tag)
}

func (m *Memory) getLocked(tag string) (allocator.Tag, error) {
	t, ok := m.tags[tag]
	switch {
	case !ok:
		return allocator.Tag{}, allocator.ErrUnknownTag
	case t.Deleted:
		return allocator.Tag{}, allocator.ErrDeleted
	}
	return t, nil
}

func (m *Memory) putLocked(t allocator.Tag) allocator.Tag {
	t.Updated = time.Now()
	m.tags[t.Name] = t
	m.changedLocked(t.Name)
	return t
}

// changedLocked lets the watches look at a tag.
func (m *Memory) changedLocked(tag string) {
	m.log = append(m.log, tag)
	close(m.changed)
	m.changed = make(chan struct{})
}

// List implements [allocator.Store].
func (m *Memory) List(_ context.Context, q allocator.Query) ([]allocator.Tag, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []allocator.Tag
	for _, name := range slices.Sorted(maps.Keys(m.tags)) {
		t := m.tags[name]
		if len(found) < q.Limit && q.Match(name) && !t.Deleted {
			found = append(found, t)
		}
	}
	return found, nil
}

// Create implements [allocator.Store].
func (m *Memory) Create(_ context.Context, tag allocator.Tag) (allocator.Tag, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, ok := m.tags[tag.Name]
	switch {
	case ok && old.Order != tag.Order:
		return allocator.Tag{}, allocator.ErrConflict
	case ok && !old.Deleted:
		return allocator.Tag{}, allocator.ErrExists
	}
	tag.MaxID, tag.Rules = max(tag.MaxID, old.MaxID), tag.Rules.After(old.Rules)
	if tag.Floor = tag.MaxID; tag.MaxID == 1 {
		tag.Floor = 0
	}
	return m.putLocked(tag), nil
}

// Update implements [allocator.Store].
func (m *Memory) Update(_ context.Context, tag string, c allocator.Change) (allocator.Tag, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.getLocked(tag)
	if err != nil {
		return allocator.Tag{}, err
	}
	if t, err = t.With(c); err != nil {
		return allocator.Tag{}, err
	}
	return m.putLocked(t), nil
}

// Delete implements [allocator.Store].
func (m *Memory) Delete(_ context.Context, tag string, from int64) (allocator.Tag, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.getLocked(tag)
	if err != nil {
		return allocator.Tag{}, err
	}
	t.Deleted, t.MaxID = true, max(t.MaxID, from)
	return m.putLocked(t), nil
}

// Floors implements [allocator.Store].
func (m *Memory) Floors(ctx context.Context, f func(tag string, floor int64, rules allocator.Rules)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	tags := maps.Clone(m.tags)
	m.mu.Unlock()
	for _, t := range tags {
		if floor := t.Below(); floor > 0 || t.Version > 0 {
			f(t.Name, floor, t.Rules)
		}
	}
	return nil
}

// Watch implements [allocator.Store].
func (m *Memory) Watch(ctx context.Context, f func(allocator.Tag)) error {
	m.mu.Lock()
	seen := len(m.log)
	now := slices.Collect(maps.Values(m.tags))
	changed := m.changed
	m.mu.Unlock()
	for {
		for _, t := range now {
			f(t)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("watching: %w", ctx.Err())
		case <-changed:
		}
		m.mu.Lock()
		now = now[:0]
		for _, name := range m.log[seen:] {
			now = append(now, m.tags[name])
		}
		seen, changed = len(m.log), m.changed
		m.mu.Unlock()
	}
}

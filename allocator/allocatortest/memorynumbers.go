package allocatortest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// MemoryNumbers is an [allocator.Numbers] in memory, which passes [RunNumbers] like the real ones.
// Copies of the pointer are handles on the same rows.
type MemoryNumbers struct {
	mu   sync.Mutex
	rows map[string]allocator.Row // with MaxID 0: only a mark
	err  error
}

var _ allocator.Numbers = (*MemoryNumbers)(nil)

// NewMemoryNumbers returns an empty database.
func NewMemoryNumbers() *MemoryNumbers { return &MemoryNumbers{rows: make(map[string]allocator.Row)} }

// rowLocked returns the row of a tag that must be there.
func (m *MemoryNumbers) rowLocked(ctx context.Context, tag string) (allocator.Row, error) {
	if err := ctx.Err(); err != nil {
		return allocator.Row{}, err
	}
	r, ok := m.rows[tag]
	if !ok || r.MaxID == 0 {
		return r, fmt.Errorf("%w: %s has no row", allocator.ErrUnknownTag, tag)
	}
	return r, nil
}

// Advance implements [allocator.Numbers].
func (m *MemoryNumbers) Advance(ctx context.Context, tag string, n, _, from int64) (allocator.Range, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.rowLocked(ctx, tag)
	if err != nil {
		return allocator.Range{}, 0, err
	}
	if r.Problem != nil {
		return allocator.Range{}, 0, r.Problem
	}
	from = max(from, 1)
	if was := r.MaxID; was < from {
		r.MaxID = from
		m.rows[tag] = r
		return allocator.Range{}, r.Step, &allocator.AdvancedError{Tag: tag, Got: was, Seen: from}
	}
	left := math.MaxInt64 - r.MaxID
	if left < n {
		return allocator.Range{}, r.Step, fmt.Errorf("%w: %s has %d IDs left", allocator.ErrExhausted, tag, left)
	}
	first := r.MaxID
	r.MaxID += min(max(n, r.Step), left)
	m.rows[tag] = r
	return allocator.Range{First: first, Last: r.MaxID - 1}, r.Step, nil
}

// Peek implements [allocator.Numbers].
func (m *MemoryNumbers) Peek(ctx context.Context, tag string) (allocator.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[tag]
	r.Name = tag
	return r, ctx.Err()
}

// Add implements [allocator.Numbers].
func (m *MemoryNumbers) Add(ctx context.Context, r allocator.Row) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.rows[r.Name]
	if old.MaxID != 0 {
		return fmt.Errorf("%w: %s", allocator.ErrExists, r.Name)
	}
	m.setLocked(r)
	return nil
}

// setLocked sets the row of a tag. Its mark stays.
func (m *MemoryNumbers) setLocked(r allocator.Row) {
	old := m.rows[r.Name]
	r.Mark, r.Kind, r.Problem = old.Mark, old.Kind, idspace.CheckTag(r.Name)
	if r.Step < 1 {
		r.Problem = fmt.Errorf("%w: the step is %d", allocator.ErrDamaged, r.Step)
	}
	m.rows[r.Name] = r
}

// Raise implements [allocator.Numbers].
func (m *MemoryNumbers) Raise(ctx context.Context, tag string, end int64, step *int64, description *string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.rowLocked(ctx, tag)
	if err != nil {
		return err
	}
	if step != nil {
		if err := allocator.CheckStep(*step, allocator.LimitStep); err != nil {
			return err
		}
		r.Step, r.Problem = *step, nil
	}
	if description != nil {
		r.Description = *description
	}
	r.MaxID = max(r.MaxID, end)
	m.rows[tag] = r
	return nil
}

// Mark implements [allocator.Numbers].
func (m *MemoryNumbers) Mark(ctx context.Context, tag string, mark int64, kind string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.markLocked(tag, mark, kind)
	return nil
}

func (m *MemoryNumbers) markLocked(tag string, mark int64, kind string) {
	r := m.rows[tag]
	r.Name, r.Mark, r.Kind = tag, max(r.Mark, mark), kind
	m.rows[tag] = r
}

// Remove implements [allocator.Numbers].
func (m *MemoryNumbers) Remove(ctx context.Context, tag string, mark int64, kind string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.markLocked(tag, mark, kind)
	m.deleteLocked(tag)
	return nil
}

// deleteLocked removes the row of a tag. Its mark stays.
func (m *MemoryNumbers) deleteLocked(tag string) {
	r := m.rows[tag]
	if r.Mark == 0 {
		delete(m.rows, tag)
		return
	}
	m.rows[tag] = allocator.Row{Name: tag, Mark: r.Mark, Kind: r.Kind}
}

// Rows implements [allocator.Numbers]. It calls f in the order of names.
func (m *MemoryNumbers) Rows(ctx context.Context, f func(allocator.Row)) error {
	rows := m.Snapshot()
	for _, tag := range slices.Sorted(maps.Keys(rows)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		f(rows[tag])
	}
	return nil
}

// Check implements [allocator.Numbers].
func (m *MemoryNumbers) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.Err()
}

// Err implements [allocator.Numbers]. It returns what SetErr was given.
func (m *MemoryNumbers) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// SetErr sets what Err and Check return.
func (m *MemoryNumbers) SetErr(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// SetRow sets the row of a tag, as SQL by hand can. The row's mark stays.
func (m *MemoryNumbers) SetRow(r allocator.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLocked(r)
}

// DeleteRow removes the row of a tag, as SQL by hand can. The row's mark stays.
func (m *MemoryNumbers) DeleteRow(tag string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleteLocked(tag)
}

// Snapshot returns all rows, and the marks without a row.
func (m *MemoryNumbers) Snapshot() map[string]allocator.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.rows)
}

// Restore sets the rows and marks back to a snapshot, as an operator with a backup does.
func (m *MemoryNumbers) Restore(snapshot map[string]allocator.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = maps.Clone(snapshot)
}

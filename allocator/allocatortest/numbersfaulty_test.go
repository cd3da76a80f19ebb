package allocatortest

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// wrongNumbers is numbers of which one method is wrong.
type wrongNumbers struct {
	*MemoryNumbers
	advance func(ctx context.Context, tag string, n, from int64) (allocator.Range, int64, error)
	add     func(ctx context.Context, r allocator.Row) error
	raise   func(ctx context.Context, tag string, end int64, step *int64, description *string) error
	mark    func(ctx context.Context, tag string, mark int64, kind string) error
	remove  func(ctx context.Context, tag string, mark int64, kind string) error
	rows    func(ctx context.Context, f func(allocator.Row)) error
}

func (w wrongNumbers) Advance(ctx context.Context, tag string, n, step, from int64) (allocator.Range, int64, error) {
	if w.advance != nil {
		return w.advance(ctx, tag, n, from)
	}
	return w.MemoryNumbers.Advance(ctx, tag, n, step, from)
}

func (w wrongNumbers) Add(ctx context.Context, r allocator.Row) error {
	if w.add != nil {
		return w.add(ctx, r)
	}
	return w.MemoryNumbers.Add(ctx, r)
}

func (w wrongNumbers) Raise(ctx context.Context, tag string, end int64, step *int64, description *string) error {
	if w.raise != nil {
		return w.raise(ctx, tag, end, step, description)
	}
	return w.MemoryNumbers.Raise(ctx, tag, end, step, description)
}

func (w wrongNumbers) Mark(ctx context.Context, tag string, mark int64, kind string) error {
	if w.mark != nil {
		return w.mark(ctx, tag, mark, kind)
	}
	return w.MemoryNumbers.Mark(ctx, tag, mark, kind)
}

func (w wrongNumbers) Remove(ctx context.Context, tag string, mark int64, kind string) error {
	if w.remove != nil {
		return w.remove(ctx, tag, mark, kind)
	}
	return w.MemoryNumbers.Remove(ctx, tag, mark, kind)
}

func (w wrongNumbers) Rows(ctx context.Context, f func(allocator.Row)) error {
	if w.rows != nil {
		return w.rows(ctx, f)
	}
	return w.MemoryNumbers.Rows(ctx, f)
}

// setMark sets a mark, also down.
func setMark(m *MemoryNumbers, tag string, mark int64, kind string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[tag]
	r.Name, r.Mark, r.Kind = tag, mark, kind
	m.rows[tag] = r
}

// TestFaultyNumbers: each of these breaks the contract, and the named case of the suite finds it.
func TestFaultyNumbers(t *testing.T) {
	for _, faulty := range []struct {
		name, by string
		make     func(m *MemoryNumbers) wrongNumbers
	}{
		{"Advance reads, and then writes", "ManyHandles", func(m *MemoryNumbers) (w wrongNumbers) {
			w.advance = func(ctx context.Context, tag string, n, from int64) (allocator.Range, int64, error) {
				r, err := m.Peek(ctx, tag)
				sleep(ctx, poll)
				first := max(r.MaxID, from)
				r.MaxID = first + max(n, r.Step)
				m.SetRow(r)
				return allocator.Range{First: first, Last: r.MaxID - 1}, r.Step, err
			}
			return w
		}},
		{"Advance begins below from", "From", func(m *MemoryNumbers) (w wrongNumbers) {
			w.advance = func(ctx context.Context, tag string, n, _ int64) (allocator.Range, int64, error) {
				return m.Advance(ctx, tag, n, 1, 1)
			}
			return w
		}},
		{"Advance says that it moved max_id, and did not", "From", func(m *MemoryNumbers) (w wrongNumbers) {
			w.advance = func(ctx context.Context, tag string, n, from int64) (allocator.Range, int64, error) {
				if r, _ := m.Peek(ctx, tag); r.MaxID > 0 && r.MaxID < from {
					return allocator.Range{}, 0, &allocator.AdvancedError{Tag: tag, Got: r.MaxID, Seen: from}
				}
				return m.Advance(ctx, tag, n, 1, from)
			}
			return w
		}},
		{"Advance moves max_id to from, also down", "FromMany", func(m *MemoryNumbers) (w wrongNumbers) {
			w.advance = func(ctx context.Context, tag string, n, from int64) (allocator.Range, int64, error) {
				r, step, err := m.Advance(ctx, tag, n, 1, from)
				if _, ok := errors.AsType[*allocator.AdvancedError](err); ok {
					sleep(ctx, poll)
					row, _ := m.Peek(ctx, tag)
					row.MaxID = from
					m.SetRow(row)
				}
				return r, step, err
			}
			return w
		}},
		{"Advance goes on without saying that the row was behind", "From", func(m *MemoryNumbers) (w wrongNumbers) {
			w.advance = func(ctx context.Context, tag string, n, from int64) (allocator.Range, int64, error) {
				r, step, err := m.Advance(ctx, tag, n, 1, from)
				if _, ok := errors.AsType[*allocator.AdvancedError](err); ok {
					return m.Advance(ctx, tag, n, 1, from)
				}
				return r, step, err
			}
			return w
		}},
		{"Advance takes a row that another name has", "NamesByCase", func(m *MemoryNumbers) (w wrongNumbers) {
			w.add = func(ctx context.Context, r allocator.Row) error {
				if r.Name == "Order" {
					return allocator.ErrExists
				}
				return m.Add(ctx, r)
			}
			w.advance = func(ctx context.Context, tag string, n, from int64) (allocator.Range, int64, error) {
				if tag == "Order" {
					tag = "order"
				}
				return m.Advance(ctx, tag, n, 1, from)
			}
			return w
		}},
		{"Advance takes less than n at the end", "Exhausted", func(m *MemoryNumbers) (w wrongNumbers) {
			w.advance = func(ctx context.Context, tag string, n, from int64) (allocator.Range, int64, error) {
				r, _ := m.Peek(ctx, tag)
				return m.Advance(ctx, tag, min(n, max(math.MaxInt64-r.MaxID, 1)), 1, from)
			}
			return w
		}},
		{"Advance needs a whole step", "Exhausted", func(m *MemoryNumbers) (w wrongNumbers) {
			w.advance = func(ctx context.Context, tag string, n, from int64) (allocator.Range, int64, error) {
				r, _ := m.Peek(ctx, tag)
				return m.Advance(ctx, tag, max(n, r.Step), 1, from)
			}
			return w
		}},
		{"Advance makes a row", "UnknownTag", func(m *MemoryNumbers) (w wrongNumbers) {
			w.advance = func(ctx context.Context, tag string, n, from int64) (allocator.Range, int64, error) {
				m.Add(ctx, allocator.Row{Name: tag, MaxID: 1, Step: 1})
				return m.Advance(ctx, tag, n, 1, from)
			}
			return w
		}},
		{"Add replaces a row", "AddTwice", func(m *MemoryNumbers) (w wrongNumbers) {
			w.add = func(_ context.Context, r allocator.Row) error { m.SetRow(r); return nil }
			return w
		}},
		{"Raise can lower", "Raise", func(m *MemoryNumbers) (w wrongNumbers) {
			w.raise = func(ctx context.Context, tag string, end int64, step *int64, description *string) error {
				err := m.Raise(ctx, tag, end, step, description)
				if r, _ := m.Peek(ctx, tag); err == nil && end > 1 {
					r.MaxID = end
					m.SetRow(r)
				}
				return err
			}
			return w
		}},
		{"Raise of a row that is as it should be says that there is none", "Raise",
			func(m *MemoryNumbers) (w wrongNumbers) {
				w.raise = func(ctx context.Context, tag string, end int64, step *int64, description *string) error {
					before, _ := m.Peek(ctx, tag)
					err := m.Raise(ctx, tag, end, step, description)
					if after, _ := m.Peek(ctx, tag); err == nil && before == after {
						return allocator.ErrUnknownTag
					}
					return err
				}
				return w
			}},
		{"Mark can lower", "Mark", func(m *MemoryNumbers) (w wrongNumbers) {
			w.mark = func(_ context.Context, tag string, mark int64, kind string) error {
				setMark(m, tag, mark, kind)
				return nil
			}
			return w
		}},
		{"Mark reads, and then writes", "Mark", func(m *MemoryNumbers) (w wrongNumbers) {
			w.mark = func(ctx context.Context, tag string, mark int64, kind string) error {
				r, err := m.Peek(ctx, tag)
				sleep(ctx, poll)
				setMark(m, tag, max(r.Mark, mark), kind)
				return err
			}
			return w
		}},
		{"Mark forgets the kind", "Mark", func(m *MemoryNumbers) (w wrongNumbers) {
			w.mark = func(ctx context.Context, tag string, mark int64, _ string) error {
				return m.Mark(ctx, tag, mark, "")
			}
			return w
		}},
		{"Remove leaves no mark", "Remove", func(m *MemoryNumbers) (w wrongNumbers) {
			w.remove = func(_ context.Context, tag string, _ int64, _ string) error { m.DeleteRow(tag); return nil }
			return w
		}},
		{"Rows leaves out marks without a row", "Rows", func(m *MemoryNumbers) (w wrongNumbers) {
			w.rows = func(ctx context.Context, f func(allocator.Row)) error {
				return m.Rows(ctx, func(r allocator.Row) {
					if r.MaxID != 0 {
						f(r)
					}
				})
			}
			return w
		}},
		{"Rows leaves out rows that cannot be served", "BadRows", func(m *MemoryNumbers) (w wrongNumbers) {
			w.rows = func(ctx context.Context, f func(allocator.Row)) error {
				return m.Rows(ctx, func(r allocator.Row) {
					if r.Problem == nil {
						f(r)
					}
				})
			}
			return w
		}},
	} {
		t.Run(faulty.name, func(t *testing.T) {
			for _, c := range NumbersCases() {
				if c.Name != faulty.by {
					continue
				}
				failed := attempt(t, func(tb testing.TB) {
					c.Run(tb, numbersIn(func(m *MemoryNumbers) allocator.Numbers {
						w := faulty.make(m)
						w.MemoryNumbers = m
						return w
					})(tb))
				})
				if failed == "" {
					t.Errorf("%s passed", c.Name)
				} else {
					t.Logf("%s: %s", c.Name, failed)
				}
			}
		})
	}
}

package allocatortest

import (
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

func memoryBackend(open func(*Memory) allocator.Store) func(testing.TB) Backend {
	return func(testing.TB) Backend {
		m := NewMemory()
		return Backend{
			Open: func(testing.TB) allocator.Store { return open(m) },
			Save: func(testing.TB) func() {
				saved := m.Snapshot()
				return func() { m.Restore(saved) }
			},
			Strict: true,
		}
	}
}

func TestMemory(t *testing.T) {
	Run(t, memoryBackend(func(m *Memory) allocator.Store { return m }))
}

// TestHandle runs the suite on handles that replace the record of a strict tag only if it is as they know it.
func TestHandle(t *testing.T) {
	Run(t, memoryBackend(func(m *Memory) allocator.Store { return NewHandle(m, "node", nil) }))
}

// TestOrdered runs the suite on a store of trend order, with its ledger, and one of strict tags.
func TestOrdered(t *testing.T) {
	Run(t, func(testing.TB) Backend {
		trend, strict, ledger := NewMemory(), NewMemory(), NewMemoryLedger()
		return Backend{
			Open: func(testing.TB) allocator.Store {
				return allocator.NewOrdered(allocator.WithLedger(trend, ledger, allocator.NewMarks(), ""), NewHandle(strict, "node", nil), ledger)
			},
			Save: func(testing.TB) func() {
				savedTrend, savedStrict := trend.Snapshot(), strict.Snapshot()
				return func() { trend.Restore(savedTrend); strict.Restore(savedStrict) }
			},
			Gaps: true, Strict: true,
		}
	})
}

// TestClaimed runs the suite on a store with a ledger. Only the store goes backwards.
func TestClaimed(t *testing.T) {
	Run(t, func(tb testing.TB) Backend {
		ledger := NewMemoryLedger()
		b := memoryBackend(func(m *Memory) allocator.Store {
			return allocator.WithLedger(m, ledger, allocator.NewMarks(), "")
		})(tb)
		b.Gaps, b.Strict = true, false
		return b
	})
}

func TestChecker(t *testing.T) {
	var c Checker
	c.Add(allocator.Range{First: 5, Last: 9}, allocator.Range{First: 1, Last: 4})
	if ids, err := c.Check(); ids != 9 || err != nil {
		t.Errorf("Check = %d, %v; want 9 and no error", ids, err)
	}
	c.Add(allocator.Range{First: 10, Last: 10})
	if ids, err := c.Check(); ids != 10 || err != nil {
		t.Errorf("Check = %d, %v; want 10 and no error", ids, err)
	}
	c.Add(allocator.Range{First: 9, Last: 9})
	if _, err := c.Check(); err == nil {
		t.Errorf("an ID in two ranges was not found")
	}
}

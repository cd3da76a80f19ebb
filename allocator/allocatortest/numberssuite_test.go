package allocatortest

import (
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// numbersIn is the suite's backend of numbers in memory. wrap changes each handle.
func numbersIn(wrap func(m *MemoryNumbers) allocator.Numbers) func(testing.TB) NumbersBackend {
	return func(testing.TB) NumbersBackend {
		m := NewMemoryNumbers()
		return NumbersBackend{
			Open:      func(testing.TB) allocator.Numbers { return wrap(m) },
			SetRow:    func(_ testing.TB, r allocator.Row) { m.SetRow(r) },
			DeleteRow: func(_ testing.TB, tag string) { m.DeleteRow(tag) },
		}
	}
}

func TestNumbers(t *testing.T) {
	RunNumbers(t, numbersIn(func(m *MemoryNumbers) allocator.Numbers { return m }))
}

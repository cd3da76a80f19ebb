package allocatortest

import (
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

func TestNumbers(t *testing.T) {
	RunNumbers(t, func(testing.TB) NumbersBackend {
		m := NewMemoryNumbers()
		return NumbersBackend{
			Open:      func(testing.TB) allocator.Numbers { return m },
			SetRow:    func(_ testing.TB, r allocator.Row) { m.SetRow(r) },
			DeleteRow: func(_ testing.TB, tag string) { m.DeleteRow(tag) },
		}
	})
}

package allocatortest

import (
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// recordsIn is the suite's backend of records in memory. wrap changes each handle.
func recordsIn(wrap func(m *MemoryRecords) allocator.Records) func(testing.TB) RecordsBackend {
	return func(testing.TB) RecordsBackend {
		m := NewMemoryRecords()
		spoil := func(err error) func(testing.TB, string) {
			return func(_ testing.TB, tag string) { m.Spoil(tag, err) }
		}
		return RecordsBackend{
			Open:   func(testing.TB) allocator.Records { return wrap(m.Open()) },
			Damage: spoil(allocator.ErrDamaged),
			Remove: spoil(allocator.ErrDamaged),
			Newer:  spoil(allocator.ErrNewer),
			Save: func(testing.TB) func() {
				saved := m.Snapshot()
				return func() { m.Restore(saved) }
			},
			Restart: func(testing.TB) { m.Restore(m.Snapshot()) },
		}
	}
}

func TestRecords(t *testing.T) {
	RunRecords(t, recordsIn(func(m *MemoryRecords) allocator.Records { return m }))
}

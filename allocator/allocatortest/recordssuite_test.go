package allocatortest

import (
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

func TestRecords(t *testing.T) {
	RunRecords(t, func(testing.TB) RecordsBackend {
		m := NewMemoryRecords()
		spoil := func(err error) func(testing.TB, string) {
			return func(_ testing.TB, tag string) { m.Spoil(tag, err) }
		}
		return RecordsBackend{
			Open:   func(testing.TB) allocator.Records { return m.Open() },
			Damage: spoil(allocator.ErrDamaged),
			Remove: spoil(allocator.ErrDamaged),
			Newer:  spoil(allocator.ErrNewer),
			Save: func(testing.TB) func() {
				saved := m.Snapshot()
				return func() { m.Restore(saved) }
			},
			Restart: func(testing.TB) { m.Restore(m.Snapshot()) },
		}
	})
}

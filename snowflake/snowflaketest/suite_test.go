package snowflaketest

import (
	"testing"

	"github.com/leafbus/leafbus/snowflake"
)

func memoryBackend(open func(*Memory) snowflake.Registry) func(testing.TB) Backend {
	return func(testing.TB) Backend {
		m := NewMemory()
		return Backend{
			Open: func(testing.TB) snowflake.Registry { return open(m) },
			Save: func(testing.TB) func() {
				saved := m.Snapshot()
				return func() { m.Restore(saved) }
			},
			Wipe: func(testing.TB) { m.Wipe() },
		}
	}
}

func TestMemory(t *testing.T) {
	Run(t, memoryBackend(func(m *Memory) snowflake.Registry { return m }))
}

package allocatortest

import (
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

func TestMemoryLedger(t *testing.T) {
	RunLedger(t, func(testing.TB) LedgerBackend {
		l := NewMemoryLedger()
		return LedgerBackend{Open: func(testing.TB) allocator.Ledger { return l }}
	})
}

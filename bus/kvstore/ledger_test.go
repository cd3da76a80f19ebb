package kvstore

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

func openLedger(tb testing.TB, cfg Config) *LedgerBucket {
	tb.Helper()
	b, err := OpenLedger(testkit.Context(tb), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	seeded, err := b.Seeded(testkit.Context(tb))
	if err == nil && !seeded {
		err = b.SetSeeded(testkit.Context(tb))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// ledgerKV is the bucket as an operator with the nats CLI has it.
func ledgerKV(tb testing.TB, s *embedded.Server) jetstream.KeyValue {
	tb.Helper()
	kv, err := newConfig(tb, s).JS.KeyValue(tb.Context(), bus.BucketLedger)
	if err != nil {
		tb.Fatal(err)
	}
	return kv
}

// raise writes an end as a claim does.
func raise(tb testing.TB, l allocator.Ledger, tag string, end int64) {
	tb.Helper()
	if _, err := allocator.Raise(testkit.Context(tb), l, tag, end, 0); err != nil {
		tb.Fatal(err)
	}
}

func TestLedgerConformance(t *testing.T) {
	t.Parallel()
	allocatortest.RunLedger(t, func(tb testing.TB) allocatortest.LedgerBackend {
		s := natskit.Start(tb)
		return allocatortest.LedgerBackend{
			Open: func(tb testing.TB) allocator.Ledger {
				l := NewLedger()
				l.Use(openLedger(tb, newConfig(tb, s)))
				return l
			},
			Delete: func(tb testing.TB, tag string) {
				if err := ledgerKV(tb, s).Delete(tb.Context(), ledgerKey+tag); err != nil {
					tb.Fatal(err)
				}
			},
		}
	})
}

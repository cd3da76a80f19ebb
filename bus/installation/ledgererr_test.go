package installation

import (
	"context"
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// Before the database is open nothing is wrong with the ledger: an alert would name what is well.
func TestLedgerBeforeTheDatabase(t *testing.T) {
	t.Parallel()
	l := newLedger(Config{}, nil)
	if err := l.Err(); err != nil {
		t.Errorf("before the database is open: %v", err)
	}
	if e, err := l.Read(t.Context(), "order"); !errors.Is(err, allocator.ErrUnavailable) {
		t.Errorf("it reads %+v, %v", e, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.await(ctx); !errors.Is(err, allocator.ErrUnavailable) || l.Err() == nil {
		t.Errorf("the database is open, the ledger is not seeded: %v, %v", err, l.Err())
	}
}

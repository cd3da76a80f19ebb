package allocatortest

import (
	"context"
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// LedgerBackend is the ledger under test. Its functions are called from the test's goroutine.
type LedgerBackend struct {
	// Open returns a new handle on the state of the test tb, as another process would have it. The
	// state of a new test is empty.
	Open func(tb testing.TB) allocator.Ledger
	// Delete removes the record of a tag by hand, as an operator might. A ledger on which that leaves no
	// trace has none: nil.
	Delete func(tb testing.TB, tag string)
}

// LedgerCase is one test of the suite for ledgers.
type LedgerCase struct {
	Name string
	Run  func(tb testing.TB, b LedgerBackend)
}

// RunLedger runs the suite for ledgers. Each case gets its backend from a call of open.
func RunLedger(t *testing.T, open func(tb testing.TB) LedgerBackend) {
	for _, c := range LedgerCases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open(t)) })
	}
}

// LedgerCases returns the suite for ledgers.
func LedgerCases() []LedgerCase {
	return []LedgerCase{
		{"FirstWrite", firstWrite},
		{"OtherRevision", otherRevision},
		{"ManyClaims", manyClaims},
		{"LateWrites", lateWrites},
		{"FloorIsKept", floorIsKept},
		{"LastIsKept", lastIsKept},
		{"LastClaim", lastClaim},
		{"EntryRules", entryRules},
		{"LargestEnd", largestEnd},
		{"EachRecord", eachRecord},
		{"EachWhileWritten", eachWhileWritten},
		{"DeletedByHand", deletedByHand},
		{"StoreBackwards", storeBackwards},
		{"LedgerContextDone", ledgerContextDone},
	}
}

// write replaces the record of a tag: after a conflict, or an answer that was lost, from what is read
// then.
func write(tb testing.TB, l allocator.Ledger, tag string, end, floor int64) {
	tb.Helper()
	ctx := within(tb)
	for {
		e, err := l.Read(ctx, tag)
		if err == nil {
			e.End, e.Floor = end, floor
			_, err = l.Write(ctx, tag, e)
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			tb.Fatalf("writing the record of %s: %v", tag, err)
		}
	}
}

// read returns the record of a tag when it has come to end: a reading may be a little old.
func read(tb testing.TB, l allocator.Ledger, tag string, end int64) allocator.Entry {
	tb.Helper()
	ctx := within(tb)
	for {
		e, err := l.Read(ctx, tag)
		if err == nil && e.End == end {
			return e
		}
		if !sleep(ctx, poll) {
			tb.Fatalf("the record of %s is %+v, %v; want end %d", tag, e, err, end)
		}
	}
}

// advance claims n IDs as a generator does, given the record. It returns them if that was successful.
func advance(ctx context.Context, l allocator.Ledger, tag string, e allocator.Entry, n int64) (allocator.Range, error) {
	first := max(e.End, 1)
	e.End = first + n
	_, err := l.Write(ctx, tag, e)
	return allocator.Range{First: first, Last: e.End - 1}, err
}

// certain reports whether a write was done, or surely not.
func certain(err error) bool { return err == nil || errors.Is(err, allocator.ErrConflict) }

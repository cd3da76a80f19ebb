package allocatortest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// markers is a ledger on which a deletion by hand leaves a marker, as on a KV bucket.
type markers struct {
	allocator.Ledger
	mu      *sync.Mutex
	deleted map[string]bool
}

func newMarkers() markers {
	return markers{NewMemoryLedger(), new(sync.Mutex), make(map[string]bool)}
}

func (l markers) has(tag string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deleted[tag]
}

func (l markers) remove(tag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deleted[tag] = true
}

func (l markers) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	if l.has(tag) {
		return allocator.Entry{}, allocator.ErrDamaged
	}
	return l.Ledger.Read(ctx, tag)
}

func (l markers) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	if l.has(tag) {
		return 0, allocator.ErrConflict
	}
	return l.Ledger.Write(ctx, tag, e)
}

func ledgerBackend(open func(markers) allocator.Ledger) func(testing.TB) LedgerBackend {
	return func(testing.TB) LedgerBackend {
		m := newMarkers()
		return LedgerBackend{
			Open:   func(testing.TB) allocator.Ledger { return open(m) },
			Delete: func(_ testing.TB, tag string) { m.remove(tag) },
		}
	}
}

func TestMemoryLedger(t *testing.T) {
	RunLedger(t, ledgerBackend(func(m markers) allocator.Ledger { return m }))
}

// The faulty ledgers: each breaks one sentence of the contract.

// onAnother writes in spite of another revision.
type onAnother struct{ markers }

func (l onAnother) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	for {
		revision, err := l.markers.Write(ctx, tag, e)
		if !errors.Is(err, allocator.ErrConflict) {
			return revision, err
		}
		now, err := l.markers.Read(ctx, tag)
		if err != nil {
			return 0, err
		}
		e.Revision = now.Revision
	}
}

type writesNothing struct{ markers } // now and then, with success

func (l writesNothing) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	if rand.IntN(10) == 0 {
		return e.Revision + 1, nil
	}
	return l.markers.Write(ctx, tag, e)
}

// retries sends a write again that was done without an answer, and takes its own record for another's.
type retries struct{ markers }

func (l retries) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	revision, err = l.markers.Write(ctx, tag, e)
	if err == nil && rand.IntN(10) == 0 {
		revision, err = l.markers.Write(ctx, tag, e)
	}
	return revision, err
}

// late has writes that land after their context ended, and after the next success.
type late struct {
	onAnother
	mu      sync.Mutex
	pending func()
}

func (l *late) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	if _, bounded := ctx.Deadline(); bounded && rand.IntN(10) == 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pending = func() { l.onAnother.Write(context.Background(), tag, e) }
		return 0, context.DeadlineExceeded
	}
	revision, err = l.markers.Write(ctx, tag, e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.pending != nil {
		l.pending()
		l.pending = nil
	}
	return revision, err
}

// counts has revisions that each process counts from 1 by itself.
type counts struct {
	onAnother
	mu     sync.Mutex
	counts map[string]uint64
}

func (l *counts) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	e, err := l.markers.Read(ctx, tag)
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Revision > 0 {
		e.Revision = l.counts[tag] + 1
	}
	return e, err
}

func (l *counts) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Revision > 0 && e.Revision != l.counts[tag]+1 {
		return 0, allocator.ErrConflict
	}
	l.counts[tag]++
	if _, err := l.onAnother.Write(ctx, tag, e); err != nil {
		return 0, err
	}
	return l.counts[tag] + 1, nil
}

type guessesRevision struct{ markers } // of what it wrote: that it is the next one

func (l guessesRevision) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	_, err = l.markers.Write(ctx, tag, e)
	return e.Revision + 1, err
}

type dropsFloor struct{ markers }

func (l dropsFloor) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	e.Floor = 0
	return l.markers.Write(ctx, tag, e)
}

type dropsLast struct{ markers } // when no range is claimed

func (l dropsLast) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	if e.End != e.Last.Last+1 {
		e.Last = allocator.Claim{}
	}
	return l.markers.Write(ctx, tag, e)
}

type seconds struct{ markers } // keeps times as a database does that has no fractions

func (l seconds) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	e.Last.Time = e.Last.Time.Truncate(time.Second)
	return l.markers.Write(ctx, tag, e)
}

// misses the record that was written last: its Each ends too early.
type misses struct{ markers }

func (l misses) Each(ctx context.Context, f func(tag string, e allocator.Entry)) error {
	last, newest := "", uint64(0)
	note := func(tag string, e allocator.Entry) {
		if e.Revision > newest {
			last, newest = tag, e.Revision
		}
	}
	if err := l.markers.Each(ctx, note); err != nil {
		return err
	}
	return l.markers.Each(ctx, func(tag string, e allocator.Entry) {
		if tag != last || newest == 1 {
			f(tag, e)
		}
	})
}

// restarts hides a record while another is written: its Each starts and ends in the middle.
type restarts struct{ markers }

func (l restarts) Each(ctx context.Context, f func(tag string, e allocator.Entry)) error {
	busy, _ := l.Read(ctx, "busy")
	n := 0
	return l.markers.Each(ctx, func(tag string, e allocator.Entry) {
		if n++; n > 3 || busy.Revision == 0 {
			f(tag, e)
		}
	})
}

type guesses struct{ markers } // that a deleted record never was

func (l guesses) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	if l.has(tag) {
		return allocator.Entry{}, nil
	}
	return l.Ledger.Read(ctx, tag)
}

type overwrites struct{ markers } // what a deletion left

func (l overwrites) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	if l.has(tag) && e.Revision == 0 {
		return 1, nil
	}
	return l.markers.Write(ctx, tag, e)
}

type ignoresContext struct{ markers }

func (l ignoresContext) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	if ctx.Err() != nil {
		time.Sleep(time.Minute) // virtual
	}
	return l.markers.Read(context.WithoutCancel(ctx), tag)
}

type floats struct{ markers } // keeps numbers as JSON does that has no integers

func (l floats) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	e, err := l.markers.Read(ctx, tag)
	if end := float64(e.End); end < 1<<63 {
		e.End = int64(end)
	}
	return e, err
}

// TestFaultyLedgers shows that the suite finds a ledger that would let IDs repeat.
func TestFaultyLedgers(t *testing.T) {
	for _, f := range []struct {
		name  string
		open  func(markers) allocator.Ledger
		found []string // by each of these cases
	}{
		{"another revision", func(m markers) allocator.Ledger { return onAnother{m} }, []string{"OtherRevision", "ManyClaims"}},
		{"writes nothing", func(m markers) allocator.Ledger { return writesNothing{m} }, []string{"FirstWrite", "ManyClaims", "StoreBackwards"}},
		{"sends again", func(m markers) allocator.Ledger { return retries{m} }, []string{"ManyClaims"}},
		{"lands late", func(m markers) allocator.Ledger { return &late{onAnother: onAnother{m}} }, []string{"LateWrites"}},
		{"own revisions", func(m markers) allocator.Ledger {
			return &counts{onAnother: onAnother{m}, counts: make(map[string]uint64)}
		}, []string{"OtherRevision", "ManyClaims"}},
		{"guesses revisions", func(m markers) allocator.Ledger { return guessesRevision{m} }, []string{"FirstWrite"}},
		{"forgets the floor", func(m markers) allocator.Ledger { return dropsFloor{m} }, []string{"FloorIsKept", "LargestEnd"}},
		{"forgets the last claim", func(m markers) allocator.Ledger { return dropsLast{m} }, []string{"LastIsKept", "LastClaim"}},
		{"rounds times", func(m markers) allocator.Ledger { return seconds{m} }, []string{"LastIsKept"}},
		{"misses a record", func(m markers) allocator.Ledger { return misses{m} }, []string{"EachRecord"}},
		{"misses what moves", func(m markers) allocator.Ledger { return restarts{m} }, []string{"EachWhileWritten"}},
		{"a deletion is no record", func(m markers) allocator.Ledger { return guesses{m} }, []string{"DeletedByHand"}},
		{"writes over a deletion", func(m markers) allocator.Ledger { return overwrites{m} }, []string{"DeletedByHand"}},
		{"ignores the context", func(m markers) allocator.Ledger { return ignoresContext{m} }, []string{"LedgerContextDone"}},
		{"floating point", func(m markers) allocator.Ledger { return floats{m} }, []string{"LargestEnd"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			for _, name := range f.found {
				if !findsFaulty(t, name, f.open) {
					t.Errorf("%s did not find it", name)
				}
			}
		})
	}
}

// findsFaulty runs a case on a ledger, in virtual time, until it fails. Some faults need a race to show:
// a few tries.
func findsFaulty(t *testing.T, name string, open func(markers) allocator.Ledger) (found bool) {
	for _, c := range LedgerCases() {
		for try := 0; c.Name == name && try < 20 && !found; try++ {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{TB: t}
				r.run(func() { c.Run(r, ledgerBackend(open)(r)) })
				found = r.failed()
			})
		}
	}
	return found
}

package allocator_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// book is a ledger in memory under instruments. It fails the test when a record moves down.
type book struct {
	*allocatortest.MemoryLedger
	tb testing.TB

	mu            sync.Mutex
	reads, writes int
	unreadable    error                                     // of each Read
	before        func(tag string, e allocator.Entry) error // of each Write
}

var errLedger = errors.New("the ledger is away")

// onRead sets the error of each Read from now on; nil: none.
func (b *book) onRead(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unreadable = err
}

// onWrite sets what happens before each Write from now on; nil: nothing.
func (b *book) onWrite(f func(tag string, e allocator.Entry) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = f
}

func (b *book) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	if b.unreadable != nil {
		return allocator.Entry{}, b.unreadable
	}
	return b.MemoryLedger.Read(ctx, tag)
}

func (b *book) Write(ctx context.Context, tag string, e allocator.Entry) (uint64, error) {
	b.mu.Lock()
	b.writes++
	before := b.before
	b.mu.Unlock()
	if before != nil {
		if err := before(tag, e); err != nil {
			return 0, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.entry(tag)
	revision, err := b.MemoryLedger.Write(ctx, tag, e)
	if err == nil && (e.End < was.End || e.Floor < was.Floor) {
		b.tb.Errorf("the record was %+v and is %+v", was, e)
	}
	return revision, err
}

func (b *book) entry(tag string) allocator.Entry {
	e, err := b.MemoryLedger.Read(context.Background(), tag)
	if err != nil {
		b.tb.Fatal(err)
	}
	return e
}

// raise moves the record of "order" up, as another generator or an operator does.
func (b *book) raise(end, floor int64) {
	b.tb.Helper()
	if _, err := allocator.Raise(context.Background(), b.MemoryLedger, "order", end, floor); err != nil {
		b.tb.Fatal(err)
	}
}

// claims is a generator's view of a store with a ledger.
type claims struct {
	allocator.Store
	store *store
	book  *book
	marks *allocator.Marks
}

func newClaims(t *testing.T, step int64) claims {
	return joined(newStore(t, step), allocatortest.NewMemoryLedger())
}

// joined is the view of one more generator.
func joined(s *store, l *allocatortest.MemoryLedger) claims {
	c := claims{store: s, book: &book{MemoryLedger: l, tb: s.tb}, marks: allocator.NewMarks()}
	c.Store = allocator.WithLedger(s, c.book, c.marks, "")
	return c
}

// twin is the view of another generator.
func (c claims) twin() claims { return joined(c.store.twin(), c.book.MemoryLedger) }

func (c claims) config(r *events) allocator.Config {
	return allocator.Config{Store: c, Marks: c.marks, Notify: r.notify}
}

// want reserves 10 IDs of "order", and wants those from first on.
func (c claims) want(t *testing.T, first int64) {
	t.Helper()
	g, err := c.Reserve(t.Context(), "order", 10, c.marks.End("order"))
	if err != nil || g.First != first {
		t.Errorf("Reserve: %v, %v; want a range from %d", g.Range, err, first)
	}
	if e := c.book.entry("order"); e.End != g.Last+1 {
		t.Errorf("the record is %+v, want its end above %v", e, g.Range)
	}
}

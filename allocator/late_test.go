package allocator_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// late is a ledger whose answers reach a process that stood still meanwhile.
type late struct {
	*book
	read, written func() // between the ledger's answer and the process; nil: nothing
}

func (l *late) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	e, err := l.book.Read(ctx, tag)
	if l.read != nil {
		l.read()
	}
	return e, err
}

func (l *late) Write(ctx context.Context, tag string, e allocator.Entry) (uint64, error) {
	revision, err := l.book.Write(ctx, tag, e)
	if l.written != nil {
		l.written()
	}
	return revision, err
}

// TestClaimLate: a claim is not based on a record whose answer was on its way for long. After a restore of the
// ledger its revision may mean another record.
func TestClaimLate(t *testing.T) {
	for name, reading := range map[string]bool{"a reading": true, "a write": false} {
		inBubble(t, name, func(t *testing.T) {
			c := newClaims(t, 10)
			l := &late{book: c.book}
			c.Store = allocator.WithLedger(c.store, l, c.marks, "")
			backup := c.book.Snapshot()
			restored := sync.OnceFunc(func() {
				c.book.Restore(backup)
				c.book.raise(1000, 0) // revision 1 again
				time.Sleep(2 * time.Second)
			})
			if !reading {
				l.written = restored
			}
			if g, err := c.Reserve(t.Context(), "order", 1, 1); err != nil || g.First != 1 {
				t.Errorf("Reserve: %v, %v", g.Range, err)
			}
			if reading {
				time.Sleep(time.Second) // until the record is not fresh
				l.read = restored
			}
			if g, err := c.Reserve(t.Context(), "order", 1, 1); !errors.Is(err, allocator.ErrConflict) {
				t.Errorf("Reserve: %v, %v; all below 1000 is claimed", g.Range, err)
			}
		})
	}
}

// TestRaiseLate: a record that was read more than a second ago is read again before it is raised.
func TestRaiseLate(t *testing.T) {
	for d, reads := range map[time.Duration]int{0: 1, time.Second: 1, 1001 * time.Millisecond: 2, time.Minute: 2} {
		inBubble(t, d.String(), func(t *testing.T) {
			l := &late{book: &book{MemoryLedger: allocatortest.NewMemoryLedger(), tb: t}}
			l.read = sync.OnceFunc(func() { time.Sleep(d) })
			if changed, err := allocator.Raise(t.Context(), l, "order", 50, 5); !changed || err != nil || l.reads != reads {
				t.Errorf("Raise: %v, %v after %d readings, want %d", changed, err, l.reads, reads)
			}
		})
	}
	inBubble(t, "restored meanwhile", func(t *testing.T) {
		l := &late{book: &book{MemoryLedger: allocatortest.NewMemoryLedger(), tb: t}}
		backup := l.Snapshot()
		l.raise(5, 0) // revision 1
		l.read = sync.OnceFunc(func() {
			l.Restore(backup)
			l.raise(1000, 0) // revision 1 again
			time.Sleep(2 * time.Second)
		})
		changed, err := allocator.Raise(t.Context(), l, "order", 50, 0)
		if e := l.entry("order"); changed || err != nil || e.End != 1000 {
			t.Errorf("Raise: %v, %v; the record is %+v", changed, err, e)
		}
	})
}

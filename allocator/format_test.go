package allocator_test

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// TestFormat: a record is written in a format that all generators know. It never gets a lower one again.
func TestFormat(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		w := newWorld(t)
		w.numbers = nil
		w.make(allocator.Tag{Name: "order"})
		known := 1
		g := w.join("one", func(c *allocator.Config) { c.Format = func() int { return known } })
		for _, step := range []struct{ known, want int }{{1, 1}, {3, 3}, {2, 3}} {
			known = step.known
			if _, err := g.Take(t.Context(), "order", 500); err != nil {
				t.Fatal(err)
			}
			if got := w.record("order").Format; got != step.want {
				t.Errorf("when all know format %d, a record of format %d is written, want %d", known, got, step.want)
			}
		}
	})
}

// TestNewerFormat: a record of a newer format may forbid what is in memory. Another generator may send it before the
// watch does.
func TestNewerFormat(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		w := newWorld(t)
		w.numbers = nil
		w.make(allocator.Tag{Name: "order"})
		g := w.join("one")
		g.wantIDs("order", 1, 1)
		s := w.record("order")
		s.Format = allocator.RecordFormat + 1
		s.Revision++
		w.records.Spoil("order", allocator.ErrNewer)
		g.Push(s)
		if _, err := g.Take(t.Context(), "order", 1); !errors.Is(err, allocator.ErrNewer) {
			t.Errorf("Take: %v, want %v", err, allocator.ErrNewer)
		}
	})
}

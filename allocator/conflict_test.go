package allocator_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// contended is a store in which others are ahead a number of times.
type contended struct {
	*allocatortest.Memory
	ahead atomic.Int64
	calls atomic.Int64
	lost  func() // called with each conflict
}

func (c *contended) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	c.calls.Add(1)
	if c.ahead.Add(-1) >= 0 {
		if c.lost != nil {
			c.lost()
		}
		return allocator.Grant{}, allocator.ErrConflict
	}
	return c.Memory.Reserve(ctx, tag, n, from)
}

// TestSeenBeforeEachRequest: what other generators report until a request to the store counts, also
// between two requests of one attempt.
func TestSeenBeforeEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &contended{Memory: allocatortest.NewMemory()}
		if _, err := s.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 100}); err != nil {
			t.Fatal(err)
		}
		s.ahead.Store(1)
		marks := allocator.NewMarks()
		s.lost = func() { marks.Observe("order", 1000) }
		a := allocator.New(allocator.Config{Records: s, Marks: marks})
		if ranges, err := a.Take(t.Context(), "order", 1); err != nil || ranges[0].First != 1000 {
			t.Errorf("Take returned %v, %v; IDs below 1000 are in use", ranges, err)
		}
	})
}

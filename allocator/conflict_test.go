package allocator_test

import (
	"context"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// TestSeenBeforeEachRequest: what other generators report until a request to the store counts, also
// between two requests of one attempt.
func TestSeenBeforeEachRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		index := allocator.NewIndex()
		a := start(t, allocator.Config{Records: s, Index: index})
		s.onReserve(func(context.Context, string, int64) error {
			s.back()
			index.Observe("order", 1000)
			return allocator.ErrConflict
		})
		if ranges := take(t, a, 1); ranges[0].First != 1000 {
			t.Errorf("got %v; IDs below 1000 are in use", ranges)
		}
	})
}

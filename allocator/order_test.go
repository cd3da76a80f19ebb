package allocator_test

import (
	"testing"
	"testing/synctest"

	"github.com/leafbus/leafbus/allocator"
)

// TestOrderOutlivesTheBuffer: the answer with IDs of a strict tag is sent after the claim, and says the order also if
// the tag has left memory meanwhile. Otherwise a client would take the tag for one of trend order, and keep IDs.
func TestOrderOutlivesTheBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		invoice := s.createTag(strictTag("invoice"))
		a := start(t, allocator.Config{Records: s})
		ranges, err := a.Take(t.Context(), "invoice", 3)
		if err != nil || len(ranges) != 1 || a.Order("invoice") != allocator.Strict {
			t.Fatalf("%v, %v", ranges, err)
		}
		synctest.Wait() // a claim that is under way keeps its tag in memory
		invoice.MaxID, invoice.Deleted = 4, true
		a.Push(invoice)
		if a.Tags() != 0 {
			t.Fatal("the tag is still in memory")
		}
		if got := a.Order("invoice"); got != allocator.Strict {
			t.Errorf("the order is %q", got)
		}
	})
}

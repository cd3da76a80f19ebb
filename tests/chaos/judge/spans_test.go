package judge

import (
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
)

// The set is compared with a map that has each ID, and the span that brought it first.
func TestSpans(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	for _, sorted := range []bool{true, false} {
		var set spans
		owners := make(map[int64]uint32)
		for kind := range uint32(8 * most) {
			first := 1 + random.Int64N(64*most)
			if sorted {
				first = 8*int64(kind) + 1 + random.Int64N(8)
			}
			s := span{Range: bus.Range{First: first, Last: first + random.Int64N(10)}, kind: kind}
			again := make(map[int64]uint32)
			for _, old := range set.add(s) {
				for id := old.First; id <= old.Last; id++ {
					again[id] = old.kind
				}
			}
			for id := s.First; id <= s.Last; id++ {
				owner, ok := owners[id]
				if got, found := again[id]; found != ok || got != owner {
					t.Fatalf("ID %d of %v: found %v, from %d; want %v, from %d", id, s, found, got, ok, owner)
				}
				if !ok {
					owners[id] = kind
				}
			}
		}
		for _, from := range []int64{1, 32 * most, 100 * most} {
			last, ids := int64(0), 0
			for s := range set.from(from) {
				if s.First <= last || s.Last < s.First || s.Last < from {
					t.Fatalf("from %d: %v came after %d", from, s, last)
				}
				for last = s.First; ; last++ {
					if owner, ok := owners[last]; !ok || owner != s.kind {
						t.Fatalf("from %d: ID %d from %d, want %v, from %d", from, last, s.kind, ok, owner)
					}
					if last >= from {
						ids++
					}
					if last == s.Last {
						break
					}
				}
			}
			for id := range owners {
				if id >= from {
					ids--
				}
			}
			if ids != 0 {
				t.Errorf("from %d: %d IDs more than were added", from, ids)
			}
		}
		for _, b := range set.blocks {
			if len(b) == 0 || len(b) > most {
				t.Errorf("a block has %d spans", len(b))
			}
		}
	}
}

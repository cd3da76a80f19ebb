package audit

import (
	"slices"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
)

// Random runs, in batches of any size, are what a map makes of them.
func TestRandomRuns(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	for round := range 300 {
		var s Runs
		times := make(map[int64]int64)
		span := 1 + random.Int64N(2000) // small ones repeat much, large ones seldom
		for range random.IntN(40) {
			batch := make([]bus.Range, random.IntN(30))
			for i := range batch {
				first := 1 + random.Int64N(span)
				batch[i] = bus.Range{First: first, Last: first + random.Int64N(1+span/100)}
				for id := range batch[i].All() {
					times[id]++
				}
			}
			s.Add(batch...)
		}
		got, again, some := s.Finish()
		var repeated, last int64
		for id, n := range times {
			repeated += n - 1
			last = max(last, id)
		}
		var want []bus.Range
		for id := int64(1); id <= last; id++ {
			switch n := len(want); {
			case times[id] == 0:
			case n > 0 && want[n-1].Last == id-1:
				want[n-1].Last = id
			default:
				want = append(want, bus.Range{First: id, Last: id})
			}
		}
		if !slices.Equal(got, want) || again != repeated {
			t.Fatalf("round %d: runs %v, want %v; %d repeated, want %d", round, got, want, again, repeated)
		}
		if len(some) == 0 && repeated > 0 || len(some) > keptRepeats {
			t.Fatalf("round %d: %d of %d repeats are named", round, len(some), repeated)
		}
		for _, r := range some {
			for id := range r.All() {
				if times[id] < 2 {
					t.Fatalf("round %d: %d is said to have come again", round, id)
				}
			}
		}
	}
}

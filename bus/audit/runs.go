package audit

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/leafbus/leafbus/bus"
)

const (
	// keptRepeats is how many runs of repeated IDs are named.
	keptRepeats = 10
	// leastRecent is how many runs are added before the first merge.
	leastRecent = 4096
)

// Runs are IDs, kept as runs of neighbours, 16 bytes each, and know those that came twice. The zero
// value has none. It is safe for concurrent use.
type Runs struct {
	mu       sync.Mutex
	runs     []bus.Range // sorted, and apart from each other
	recent   []bus.Range // not merged yet, at most as many as there are runs
	repeated int64       // how often an ID came that was there already
	repeats  []bus.Range // the first that were found
}

// Add adds IDs, in any order. It returns how many runs are kept, at most: those that were added
// apart may join later.
func (s *Runs) Add(ids ...bus.Range) (kept int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recent = append(s.recent, ids...); len(s.recent) >= max(leastRecent, len(s.runs)) {
		s.mergeLocked()
	}
	return len(s.runs) + len(s.recent)
}

// mergeLocked makes one list of all.
func (s *Runs) mergeLocked() {
	all := append(s.runs, s.recent...)
	slices.SortFunc(all, func(x, y bus.Range) int { return cmp.Compare(x.First, y.First) })
	merged := all[:0]
	for _, r := range all {
		if len(merged) == 0 || r.First-1 > merged[len(merged)-1].Last {
			merged = append(merged, r)
			continue
		}
		last := &merged[len(merged)-1]
		if r.First <= last.Last {
			again := bus.Range{First: r.First, Last: min(r.Last, last.Last)}
			if s.repeated = plus(s.repeated, again.Len()); len(s.repeats) < keptRepeats {
				s.repeats = append(s.repeats, again)
			}
		}
		last.Last = max(last.Last, r.Last)
	}
	s.runs, s.recent = merged, s.recent[:0]
}

// Finish returns the runs, in increasing order, how often an ID came that was there already, and
// the first 10 runs of such IDs that were found. The runs must not be changed.
func (s *Runs) Finish() (runs []bus.Range, repeated int64, some []bus.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mergeLocked()
	slices.SortFunc(s.repeats, func(x, y bus.Range) int { return cmp.Compare(x.First, y.First) })
	return s.runs, s.repeated, slices.Compact(s.repeats)
}

// plus adds two counts. It stops at the highest number: lines of a file and forged events may have
// huge ranges.
func plus(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

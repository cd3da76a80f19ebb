package audit

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/leafbus/leafbus/bus"
)

// keptRepeats is how many runs of repeated IDs are named.
const keptRepeats = 10

// Runs are IDs, kept as runs of neighbours, 16 bytes each, and know those that came twice. The zero value has none.
// It is safe for concurrent use.
type Runs struct {
	mu sync.Mutex
	// Each list is sorted, its runs apart from each other, and is at least twice as
	// long as the next one: so an ID is moved a few times, however many there are.
	lists    [][]bus.Range
	repeated int64       // how often an ID came that was there already
	repeats  []bus.Range // the first that were found
}

// Add adds IDs, in any order, and sorts the batch. It returns how many runs are kept, at most: those that
// were added apart may join later.
func (s *Runs) Add(batch ...bus.Range) (kept int) {
	slices.SortFunc(batch, func(x, y bus.Range) int { return cmp.Compare(x.Last, y.Last) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, s.merge(nil, batch))
	for n := len(s.lists); n > 1 && len(s.lists[n-2]) < 2*len(s.lists[n-1]); n-- {
		s.join()
	}
	for _, list := range s.lists {
		kept += len(list)
	}
	return kept
}

// join makes one list of the last two.
func (s *Runs) join() {
	n := len(s.lists)
	s.lists[n-2] = s.merge(s.lists[n-2], s.lists[n-1])
	s.lists = s.lists[:n-1]
}

// merge adds to a list, in its own memory, runs that are sorted by their end.
// It goes from the highest down, so that what it writes is never ahead of what it reads.
func (s *Runs) merge(list, more []bus.Range) []bus.Range {
	a, b := len(list), len(more)
	list = slices.Grow(list, b)[:a+b]
	at := a + b // where the last one was written
	for a > 0 || b > 0 {
		var r bus.Range
		if b == 0 || a > 0 && list[a-1].Last > more[b-1].Last {
			a--
			r = list[a]
		} else {
			b--
			r = more[b]
		}
		if at == len(list) {
			at--
			list[at] = r
			continue
		}
		last := &list[at]
		switch {
		case r.Last >= last.First:
			s.repeat(bus.Range{First: max(r.First, last.First), Last: r.Last})
			last.First = min(r.First, last.First)
		case r.Last+1 == last.First:
			last.First = r.First
		default:
			at--
			list[at] = r
		}
	}
	return list[:copy(list, list[at:])]
}

// repeat notes IDs that came again.
func (s *Runs) repeat(r bus.Range) {
	s.repeated = plus(s.repeated, r.Len())
	if len(s.repeats) < keptRepeats {
		s.repeats = append(s.repeats, r)
	}
}

// plus adds two counts. It stops at the highest number: lines of a file and forged events may have huge ranges.
func plus(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

// Finish compares all with all. It returns the runs, in increasing order: they must not be changed.
func (s *Runs) Finish() []bus.Range {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.lists) > 1 {
		s.join()
	}
	slices.SortFunc(s.repeats, func(x, y bus.Range) int { return cmp.Compare(x.First, y.First) })
	s.repeats = slices.Compact(s.repeats)
	if len(s.lists) == 0 {
		return nil
	}
	return s.lists[0]
}

// Repeated returns how often an ID came that was there already, and the first 10 runs of such IDs that were
// found. Call it after Finish.
func (s *Runs) Repeated() (count int64, some []bus.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.repeated, s.repeats
}

package judge

import (
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// span is a run of IDs and the call that got it. There are millions, so it is small, and has no pointers: the garbage
// collector does not read it. Times count from the start of the judge.
type span struct {
	bus.Range
	sent, ended time.Duration
	kind        uint32 // index of its name
	ahead       bool   // see callers.Call
}

// part returns the span with some of its IDs.
func (s span) part(first, last int64) span {
	s.First, s.Last = first, last
	return s
}

// most is how many spans a block of [spans] has. A block is moved in memory at an insertion, so it must be small.
const most = 512

// spans is a set of IDs, sorted, without overlaps. It stands in blocks, because the IDs of opaque tags come in any
// order: one slice would be moved at each insertion. The zero value is empty.
type spans struct {
	blocks [][]span // none is empty
}

// seek finds the first span that ends at id or above.
func (s *spans) seek(id int64) (block, at int) {
	block = sort.Search(len(s.blocks), func(i int) bool { b := s.blocks[i]; return b[len(b)-1].Last >= id })
	if block < len(s.blocks) {
		at = sort.Search(len(s.blocks[block]), func(i int) bool { return s.blocks[block][i].Last >= id })
	}
	return block, at
}

// from yields the spans that end at id or above.
func (s *spans) from(id int64) iter.Seq[span] {
	return func(yield func(span) bool) {
		for block, at := s.seek(id); block < len(s.blocks); block, at = block+1, 0 {
			for _, old := range s.blocks[block][at:] {
				if !yield(old) {
					return
				}
			}
		}
	}
}

// add inserts the IDs of n that the set lacks. It returns those that it has, with the calls that got them first.
func (s *spans) add(n span) (again []span) {
	for {
		block, at := s.seek(n.First)
		if block == len(s.blocks) || s.blocks[block][at].First > n.Last {
			s.insert(block, at, n)
			return again
		}
		old := s.blocks[block][at]
		if n.First < old.First {
			s.insert(block, at, n.part(n.First, old.First-1))
		}
		again = append(again, old.part(max(n.First, old.First), min(n.Last, old.Last)))
		if n.Last <= old.Last {
			return again
		}
		n.First = old.Last + 1
	}
}

func (s *spans) insert(block, at int, n span) {
	if block == len(s.blocks) && block > 0 { // above all: mostly, because IDs trend upwards
		block, at = block-1, len(s.blocks[block-1])
	}
	switch {
	case len(s.blocks) == 0:
		s.blocks = [][]span{{n}}
		return
	case len(s.blocks[block]) < most:
		s.blocks[block] = slices.Insert(s.blocks[block], at, n)
		return
	}
	half := most / 2
	if block == len(s.blocks)-1 && at == most {
		half = most // the blocks of a tag in order stay full
	}
	upper := append(make([]span, 0, most), s.blocks[block][half:]...)
	if at >= half {
		upper = slices.Insert(upper, at-half, n)
		s.blocks[block] = s.blocks[block][:half]
	} else {
		s.blocks[block] = slices.Insert(s.blocks[block][:half], at, n)
	}
	s.blocks = slices.Insert(s.blocks, block+1, upper)
}

// history is the highest ID that had come by each moment. The zero value is empty.
type history []highest

type highest struct {
	ended time.Duration
	id    int64
}

// before returns the highest ID of the answers that ended before a moment; 0: there are none.
func (h history) before(moment time.Duration) int64 {
	i := sort.Search(len(h), func(i int) bool { return h[i].ended >= moment })
	if i == 0 {
		return 0
	}
	return h[i-1].id
}

func (h *history) add(ended time.Duration, id int64) {
	i := sort.Search(len(*h), func(i int) bool { return (*h)[i].ended > ended })
	if i > 0 && (*h)[i-1].id >= id {
		return
	}
	*h = slices.Insert(*h, i, highest{ended, id})
	for i++; i < len(*h) && (*h)[i].id < id; i++ { // an answer that was added late
		(*h)[i].id = id
	}
}

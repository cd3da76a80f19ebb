package idspace

import (
	"iter"
	"math"
	"strconv"
)

// Range is a run of consecutive IDs, First to Last, both included.
// A valid range has 1 <= First <= Last.
type Range struct{ First, Last int64 }

// Len is the number of IDs in the range.
func (r Range) Len() int64 { return r.Last - r.First + 1 }

// Overlaps reports whether both have an ID in common.
func (r Range) Overlaps(other Range) bool { return r.First <= other.Last && other.First <= r.Last }

// All yields the IDs of the range in increasing order.
func (r Range) All() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for id := r.First; ; id++ {
			// Compared before the increment: Last may be the largest int64.
			if !yield(id) || id == r.Last {
				return
			}
		}
	}
}

// String is the form of the wire: "first-last", or the bare number of a run of one.
func (r Range) String() string { return string(r.Append(nil)) }

// Append adds the form of [Range.String] to b.
func (r Range) Append(b []byte) []byte {
	b = strconv.AppendInt(b, r.First, 10)
	if r.Last != r.First {
		b = append(b, '-')
		b = strconv.AppendInt(b, r.Last, 10)
	}
	return b
}

// AppendRange adds r to ranges. If r continues the last of them, it joins the two.
func AppendRange(ranges []Range, r Range) []Range {
	if n := len(ranges); n > 0 && ranges[n-1].Last+1 == r.First {
		ranges[n-1].Last = r.Last
		return ranges
	}
	return append(ranges, r)
}

// Total returns how many IDs are in the ranges, at most the largest int64.
func Total(ranges []Range) int64 {
	var n int64
	for _, r := range ranges {
		if n += r.Len(); n < 0 {
			return math.MaxInt64
		}
	}
	return n
}

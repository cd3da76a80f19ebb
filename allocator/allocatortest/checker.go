package allocatortest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/leafbus/leafbus/allocator"
)

// Checker collects ranges and finds IDs that are in two of them. Ranges that
// touch are joined, so hundreds of millions of IDs cost little. Its methods
// are safe for concurrent use; the zero value is ready.
type Checker struct {
	mu     sync.Mutex
	ranges []allocator.Range
}

// Add takes in ranges that were handed out.
func (c *Checker) Add(ranges ...allocator.Range) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranges = append(c.ranges, ranges...)
}

// Check returns how many IDs were added, and an error that names the first one
// that was added twice.
func (c *Checker) Check() (ids int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortFunc(c.ranges, func(x, y allocator.Range) int { return cmp.Compare(x.First, y.First) })
	joined := c.ranges[:0]
	for _, r := range c.ranges {
		if r.First < 1 || r.Last < r.First {
			return ids, fmt.Errorf("%v is not a range of positive IDs", r)
		}
		ids += r.Len()
		last := len(joined) - 1
		switch {
		case last >= 0 && r.First <= joined[last].Last:
			return ids, fmt.Errorf("ID %d was handed out twice: in %v and in %v", r.First, joined[last], r)
		case last >= 0 && r.First == joined[last].Last+1:
			joined[last].Last = r.Last
		default:
			joined = append(joined, r)
		}
	}
	c.ranges = joined
	return ids, nil
}

// Ranges returns what was added, as Check joined it.
func (c *Checker) Ranges() []allocator.Range {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ranges)
}

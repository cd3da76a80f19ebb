package idspace_test

import (
	"math"
	"slices"
	"testing"

	"github.com/leafbus/leafbus/bus/idspace"
)

func TestRange(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct {
		r    idspace.Range
		len  int64
		text string
	}{
		{idspace.Range{First: 1, Last: 1}, 1, "1"},
		{idspace.Range{First: 1, Last: 3}, 3, "1-3"},
		{idspace.Range{First: most, Last: most}, 1, "9223372036854775807"},
		{idspace.Range{First: most - 2, Last: most}, 3, "9223372036854775805-9223372036854775807"},
	} {
		if got := c.r.Len(); got != c.len {
			t.Errorf("%v has length %d, want %d", c.r, got, c.len)
		}
		if got := c.r.String(); got != c.text {
			t.Errorf("String() = %q, want %q", got, c.text)
		}
		ids := slices.Collect(c.r.All())
		if int64(len(ids)) != c.len || ids[0] != c.r.First || ids[len(ids)-1] != c.r.Last || !slices.IsSorted(ids) {
			t.Errorf("All() of %v yields %v", c.r, ids)
		}
		for id := range c.r.All() {
			if id != c.r.First {
				t.Errorf("All() of %v went on after a break", c.r)
			}
			break
		}
	}
}

package gateway

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
)

// maxEnding is how many tags an overview has of those that get no new IDs. The page shows fewer.
const maxEnding = 20

// tagBuffers is what all generators have of a tag.
type tagBuffers struct {
	Tag     string       `json:"tag"`
	Buffers []nodeBuffer `json:"buffers"`
}

// firstEnding returns the tags whose callers are refused first if nothing more is reserved. Generators take IDs of each
// other, so that is when the last one has none. At one generator at least a tag ends no later than at all together. So
// it is missing here only if others end even earlier at that generator, as many as that one names.
func firstEnding(states []admin.State) []string {
	all := make(map[string]allocator.TagEnd)
	for i := range states { // by index: states are large
		for _, e := range states[i].Ending {
			sum := all[e.Tag]
			all[e.Tag] = allocator.TagEnd{Tag: e.Tag, Left: sum.Left + e.Left, Rate: sum.Rate + e.Rate}
		}
	}
	names := slices.SortedFunc(maps.Keys(all), func(x, y string) int {
		return cmp.Or(cmp.Compare(all[x].Lasts(), all[y].Lasts()), strings.Compare(x, y))
	})
	return names[:min(len(names), maxEnding)]
}

// buffersOf sorts what generators hold by the named tags. A tag that none holds any more is left out.
func buffersOf(tags []string, held []admin.BuffersPage) []tagBuffers {
	found := []tagBuffers{}
	for _, tag := range tags {
		t := tagBuffers{Tag: tag}
		for _, page := range held {
			for _, b := range page.Buffers {
				if b.Tag == tag {
					t.Buffers = append(t.Buffers, nodeBuffer{page.Node, b})
				}
			}
		}
		if len(t.Buffers) > 0 {
			found = append(found, t)
		}
	}
	return found
}

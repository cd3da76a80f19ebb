package allocator

import (
	"strings"

	"github.com/leafbus/leafbus/bus/idspace"
)

// Query asks for a page of a list that is in the order of names. Names are
// compared byte by byte: they are case-sensitive, and there are no wildcards. A text
// that no tag can have finds none.
type Query struct {
	Prefix   string // names begin with it
	Contains string // names have it anywhere, also in the prefix
	After    string // names come after it
	Limit    int    // the most entries; at least 1
}

// Match reports whether a list without a limit has the name.
func (q Query) Match(name string) bool {
	return name > q.After && strings.HasPrefix(name, q.Prefix) && strings.Contains(name, q.Contains)
}

// Range is a run of consecutive IDs, First to Last, both included.
type Range = idspace.Range

package bus

import "errors"

var (
	errNotOpen = errors.New("the store is not there yet")
	errDry     = errors.New("the store is away and a tag has no IDs left")
)

// newSegments returns the service leaf-segment: it answers leaf.segment.<tag>.
func newSegments(g *Generator) *issuer {
	return &issuer{
		g: g, name: serviceSegment, description: "IDs from the segments of a tag",
		endpoints: map[string]string{"segment": SubjectSegment + ".>", "no-tag": SubjectSegment},
		request: func(subject string, n int64) ([]Range, waiter, error) {
			ranges, w, err := g.alloc.Request(nil, tagOf(subject), n)
			if w == nil { // no waiter must be no interface
				return ranges, nil, err
			}
			return nil, w, nil
		},
		healthy: func() error {
			if !g.prepared.Load() {
				return errNotOpen
			}
			if _, dry := g.alloc.Failing(); dry > 0 {
				return errDry
			}
			return nil
		},
		offered: func(b beat) bool { return b.Segment },
	}
}

// tagOf cuts the tag out of leaf.segment.<tag>; it is empty for leaf.segment.
func tagOf(subject string) string {
	if len(subject) <= len(SubjectSegment) {
		return ""
	}
	return subject[len(SubjectSegment)+1:]
}

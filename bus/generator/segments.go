package generator

import (
	"cmp"
	"strings"

	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

// newSegments returns the service leaf-segment: it answers leaf.segment.<tag>.
func newSegments(c *common) *service {
	s := &service{
		common: c, name: wire.ServiceSegment, kind: SegmentKind, description: "IDs from the segments of a tag",
		request: func(tag string, n int64) ([]bus.Range, *allocator.Later, error) {
			ranges, w, err := c.alloc.Request(nil, tag, n)
			if w == nil {
				return ranges, nil, err
			}
			return nil, &w.Later, nil
		},
		healthy:  func() error { return cmp.Or(c.phase.notPrepared(), c.alloc.Failing().Dry) },
		starting: errNotYet,
		offers:   func(b heartbeat) bool { return b.Segment },
	}
	return s.enqueue(micro.EndpointStats{Name: "segment", Subject: wire.SubjectSegment + ".>"},
		micro.EndpointStats{Name: "no-tag", Subject: wire.SubjectSegment})
}

// tagOf cuts the tag out of leaf.segment.<tag>. Other subjects have none.
func tagOf(subject string) string {
	tag, ok := strings.CutPrefix(subject, wire.SubjectSegment+".")
	if !ok {
		return ""
	}
	return tag
}

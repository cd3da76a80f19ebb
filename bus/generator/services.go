package generator

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// newSegments returns the service leaf-segment: it answers leaf.segment.<tag>.
func newSegments(c *common) *service {
	s := &service{
		common: c, name: wire.ServiceSegment, kind: SegmentKind, description: "IDs from the segments of a tag",
		request: func(tag string, n int64) ([]bus.Range, *allocator.Later, error) {
			return c.alloc.Request(nil, tag, n)
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

// newSnowflakes returns the service leaf-snowflake: it answers leaf.snowflake.
func newSnowflakes(c *common) *service {
	s := &service{
		common: c, name: wire.ServiceSnowflake, kind: SnowflakeKind,
		description: "IDs of a time, a worker and a sequence number",
		request: func(_ string, n int64) ([]bus.Range, *allocator.Later, error) {
			if why := c.flakes.noWorker(); why != nil {
				return nil, nil, why
			}
			return c.flakes.Request(nil, n)
		},
		healthy: func() error {
			if c.group.away.isShut(gateSnowflakes, time.Now()) {
				return errUnchecked
			}
			return cmp.Or(c.flakes.noWorker(), c.flakes.State().Err)
		},
		starting: fmt.Errorf("%w: %w", snowflake.ErrNoWorker, errStarting),
		offers:   func(b heartbeat) bool { return b.Snowflake },
	}
	return s.enqueue(micro.EndpointStats{Name: "snowflake", Subject: wire.SubjectSnowflake})
}

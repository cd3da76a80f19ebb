package generator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

var (
	errNotOpen = errors.New("the store is not open yet")
	errNotYet  = fmt.Errorf("%w: %w", allocator.ErrUnavailable, errStarting)
	errNoTags  = fmt.Errorf("%w: the tags of the start are not created yet", allocator.ErrUnavailable)
)

// newSegments returns the service leaf-segment: it answers leaf.segment.<tag>.
func newSegments(g *Generator) *service {
	s := &service{
		g: g, name: wire.ServiceSegment, kind: SegmentKind, description: "IDs from the segments of a tag",
		request: func(a Answer, tag string, n int64) ([]bus.Range, *allocator.Later, error) {
			gate := gateHTTP
			if a.Transport == NATS {
				gate = gateNATS
			}
			if g.group.away.isShut(gate, a.begun) && g.alloc.Order(tag) != allocator.Strict {
				if err := allocator.CheckTag(tag); err != nil {
					return nil, nil, err // no tag would ask others for snowflakes
				}
				take := func(ctx context.Context) ([]bus.Range, error) {
					if !g.phase.serving.Load() {
						return nil, allocator.ErrClosed // the generator failed while this request waited
					}
					ranges, w, err := g.alloc.Request(nil, tag, n)
					if w != nil {
						return w.Wait(ctx)
					}
					return ranges, err
				}
				w, err := g.group.away.hold(gate, g.cfg.MaxWaiting, g.cfg.MaxWait, allocator.ErrTimedOut, take)
				return nil, w, err
			}
			ranges, w, err := g.alloc.Request(nil, tag, n)
			if w == nil {
				return ranges, nil, err
			}
			return nil, &w.Later, nil
		},
		healthy: func() error {
			if g.phase.prepared.Load() {
				return g.alloc.Failing().Dry
			}
			if why := g.phase.unready.Load(); why != nil {
				return *why
			}
			return errNotOpen
		},
		starting: errNotYet,
		offers:   func(b heartbeat) bool { return b.Segment && !g.membership.isRival(b) },
	}
	return s.enqueue(micro.EndpointStats{Name: "segment", Subject: bus.SubjectSegment + ".>"},
		micro.EndpointStats{Name: "no-tag", Subject: bus.SubjectSegment})
}

// tagOf cuts the tag out of leaf.segment.<tag>. Other subjects have none.
func tagOf(subject string) string {
	tag, ok := strings.CutPrefix(subject, bus.SubjectSegment+".")
	if !ok {
		return ""
	}
	return tag
}

// notPrepared is why tags may not be known yet; nil: the records are there, and so are the tags of the start.
func (g *Generator) notPrepared() error {
	switch why := g.phase.unready.Load(); {
	case g.phase.prepared.Load():
		return nil
	case why != nil:
		return *why
	}
	return errNoTags
}

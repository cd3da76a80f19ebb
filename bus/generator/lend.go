package generator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// errLacks answers a peer that asks for IDs which are not in memory.
var errLacks = fmt.Errorf("%w: this generator has too few in memory", allocator.ErrUnavailable)

// heardTake takes IDs for another generator. Without a wait only those in memory count, and the answer says at once
// whether this generator can refill.
func (g *Generator) heardTake(msg *nats.Msg) {
	var req takeRequest
	if err := json.Unmarshal(msg.Data, &req); err != nil || msg.Reply == "" {
		g.log.Warn("a request of another generator for IDs cannot be read", "error", err)
		return
	}
	if g.group.away.drops(time.Now()) { // the peer has given up
		return
	}
	s := g.segments
	if req.Tag == "" {
		s = g.snowflakes
	}
	if req.WaitMS <= 0 {
		ranges, refills, err := g.lend(s, req)
		g.answerTake(s, req, msg.Reply, ranges, refills, err)
		return
	}
	ranges, w, err := g.takeForPeer(s, req)
	if w == nil {
		g.answerTake(s, req, msg.Reply, ranges, false, err)
		return
	}
	later := func() {
		wait := min(time.Duration(req.WaitMS)*time.Millisecond, g.cfg.MaxWait)
		ctx, cancel := context.WithTimeoutCause(context.Background(), wait, allocator.ErrTimedOut)
		defer cancel()
		ranges, err := w.Wait(ctx)
		g.answerTake(s, req, msg.Reply, ranges, false, err)
	}
	if !g.requests.start(later) {
		later() // nothing waits any more, so this ends at once
	}
}

// lend takes IDs from memory for another generator. It returns at once.
func (g *Generator) lend(s *service, req takeRequest) (ranges []bus.Range, refills bool, err error) {
	if !g.lends(req) {
		return nil, false, allocator.ErrClosed
	}
	refills = g.canServe(s)
	if req.Tag != "" {
		left, more := g.alloc.Has(req.Tag)
		refills = refills && more
		if left < max(req.Count, 1) {
			return nil, refills, errLacks
		}
	}
	ranges, later, err := s.request(Answer{Kind: s.kind, Transport: NATS, begun: time.Now()}, req.Tag, req.Count)
	if later != nil {
		later.Cancel(errLacks)
		ranges, err = later.Wait(context.Background())
	}
	return ranges, refills, err
}

// lends reports whether this generator may give IDs to the peer that asks. Before it serves, it does not hear its
// peers. In another installation the tag has other IDs.
func (g *Generator) lends(req takeRequest) bool {
	return g.phase.serving.Load() && req.Installation == g.membership.installation()
}

// takeForPeer is what [service.request] is for callers. It never passes a request for a strict tag on again.
func (g *Generator) takeForPeer(s *service, req takeRequest) ([]bus.Range, *allocator.Later, error) {
	switch {
	case !g.lends(req):
		return nil, nil, allocator.ErrClosed
	case req.Tag == "" || g.alloc.Order(req.Tag) != allocator.Strict:
		return s.request(Answer{Kind: s.kind, Transport: NATS, begun: time.Now()}, req.Tag, req.Count)
	}
	w, err := g.alloc.RequestForPeer(req.Tag, req.Count)
	if w == nil {
		return nil, nil, err
	}
	return nil, &w.Later, nil
}

// answerTake answers another generator.
func (g *Generator) answerTake(s *service, req takeRequest, reply string, ranges []bus.Range, refills bool, err error) {
	var body []byte
	if err == nil {
		body, err = s.encode(ranges, bus.Request{})
	}
	if err != nil {
		msg := errorMessage(toError(err), reply)
		if refills {
			msg.Header.Set(wire.HeaderRefills, "true")
		}
		g.respondMsg(msg)
		return
	}
	msg := idsMessage(reply, g.Order(req.Tag), body)
	if p := g.cfg.Keys.Known(req.Tag); p != nil {
		msg.Header = nats.Header{bus.HeaderOrder: {string(allocator.OpaqueOrder(p.Domain()))}, wire.HeaderKey: {p.KeyID()}}
	}
	g.respondMsg(msg)
}

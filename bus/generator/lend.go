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

// lender gives IDs to peers that ask for them:
//
//	heard              in the callback of the subject take.<run>
//	├── lend           from memory, at once
//	├── takeForPeer    with a wait: it may refill
//	└── answer
//
// Its methods are safe for concurrent use. It has no lock, because it remembers nothing.
type lender struct {
	cfg                  *Config
	phase                *phase
	link                 *link
	membership           *membership
	alloc                *allocator.Allocator
	segments, snowflakes *service
	requests             *tasks
}

// heard takes IDs for another generator. Without a wait only those in memory count, and the answer says at once
// whether this generator can refill.
func (l *lender) heard(msg *nats.Msg) {
	var req takeRequest
	if err := json.Unmarshal(msg.Data, &req); err != nil || msg.Reply == "" {
		l.cfg.Log.Warn("a request of another generator for IDs cannot be read", "error", err)
		return
	}
	if l.link.away.drops(time.Now()) { // the peer has given up
		return
	}
	s := l.segments
	if req.Tag == "" {
		s = l.snowflakes
	}
	if req.WaitMS <= 0 {
		ranges, refills, err := l.lend(s, req)
		l.answer(s, req, msg.Reply, ranges, refills, err)
		return
	}
	ranges, w, err := l.takeForPeer(s, req)
	if w == nil {
		l.answer(s, req, msg.Reply, ranges, false, err)
		return
	}
	later := func() {
		wait := min(time.Duration(req.WaitMS)*time.Millisecond, l.cfg.MaxWait)
		ctx, cancel := context.WithTimeoutCause(context.Background(), wait, allocator.ErrTimedOut)
		defer cancel()
		ranges, err := w.Wait(ctx)
		l.answer(s, req, msg.Reply, ranges, false, err)
	}
	if !l.requests.start(later) {
		later() // nothing waits any more, so this ends at once
	}
}

// lend takes IDs from memory for another generator. It returns at once.
func (l *lender) lend(s *service, req takeRequest) (ranges []bus.Range, refills bool, err error) {
	if !l.lends(req) {
		return nil, false, allocator.ErrClosed
	}
	refills = s.canServe()
	if req.Tag != "" {
		left, more := l.alloc.Has(req.Tag)
		refills = refills && more
		if left < max(req.Count, 1) {
			return nil, refills, errLacks
		}
	}
	ranges, later, err := s.request(newAnswer(s.kind, NATS), req.Tag, req.Count)
	if later != nil {
		later.Cancel(errLacks)
		ranges, err = later.Wait(context.Background())
	}
	return ranges, refills, err
}

// lends reports whether this generator may give IDs to the peer that asks. Before it serves, it does not hear its
// peers. In another installation the tag has other IDs.
func (l *lender) lends(req takeRequest) bool {
	return l.phase.serving.Load() && req.Installation == l.membership.installation()
}

// takeForPeer is what [service.request] is for callers. It never passes a request for a strict tag on again.
func (l *lender) takeForPeer(s *service, req takeRequest) ([]bus.Range, *allocator.Later, error) {
	switch {
	case !l.lends(req):
		return nil, nil, allocator.ErrClosed
	case req.Tag == "" || l.alloc.Order(req.Tag) != allocator.Strict:
		return s.request(newAnswer(s.kind, NATS), req.Tag, req.Count)
	}
	w, err := l.alloc.RequestForPeer(req.Tag, req.Count)
	if w == nil {
		return nil, nil, err
	}
	return nil, &w.Later, nil
}

// answer answers another generator.
func (l *lender) answer(s *service, req takeRequest, reply string, ranges []bus.Range, refills bool, err error) {
	var body []byte
	if err == nil {
		body, err = s.encode(ranges, bus.Request{})
	}
	if err != nil {
		msg := errorMessage(toError(err), reply)
		if refills {
			msg.Header.Set(wire.HeaderRefills, "true")
		}
		l.link.send(msg)
		return
	}
	msg := idsMessage(reply, l.alloc.Order(req.Tag), body)
	if p := l.cfg.Keys.Known(req.Tag); p != nil {
		msg.Header = nats.Header{bus.HeaderOrder: {string(allocator.OpaqueOrder(p.Domain()))}, wire.HeaderKey: {p.KeyID()}}
	}
	l.link.send(msg)
}

package generator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

// errLacks answers a peer that asks for IDs which are not in memory.
var errLacks = fmt.Errorf("%w: this generator has too few in memory", allocator.ErrUnavailable)

// lender gives IDs to peers that ask for them:
//
//	heard              in the callback of the subject take.<run>, or in a goroutine if it may wait
//	├── lend ── take   from memory; with a wait it may refill
//	└── answer
//
// Its methods are safe for concurrent use. It has no lock, because it remembers nothing.
type lender struct {
	*base
	segments, snowflakes *service
	requests             *tasks
}

// heard takes IDs for another generator. Without a wait only those in memory count, and the answer
// says at once whether this generator can refill.
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
	answer := func() {
		ranges, err := l.lend(s, req)
		l.answer(s, req, msg.Reply, ranges, err)
	}
	if req.WaitMS <= 0 || !l.requests.start(answer) {
		answer() // nothing waits, or not any more, so this ends at once
	}
}

// lend takes IDs. If it may, it waits for them, at a gate too. Before this generator serves, it
// does not hear its peers. In another installation the tag has other IDs.
func (l *lender) lend(s *service, req takeRequest) (ranges []bus.Range, err error) {
	if !l.phase.serving.Load() || req.Installation != l.membership.installation() {
		return nil, allocator.ErrClosed
	}
	late := allocator.ErrTimedOut
	if req.WaitMS <= 0 {
		late = errLacks
	}
	wait := min(time.Duration(req.WaitMS)*time.Millisecond, l.cfg.MaxWait)
	ctx, cancel := context.WithTimeoutCause(context.Background(), wait, late)
	defer cancel()
	if g, shut := s.shut(newAnswer(s.kind, NATS, req.Tag)); shut {
		if err := s.await(ctx, g, gateFor); err != nil {
			return nil, err
		}
	}
	ranges, later, err := l.take(s, req)
	if later != nil {
		ranges, err = later.Wait(ctx)
	}
	return ranges, err
}

// take is what [service.request] is for callers. It never passes a request for a strict tag on
// again.
func (l *lender) take(s *service, req takeRequest) ([]bus.Range, *allocator.Later, error) {
	if req.Tag != "" && req.WaitMS <= 0 {
		if left, _ := l.alloc.Has(req.Tag); left < max(req.Count, 1) {
			return nil, nil, errLacks
		}
	} else if req.Tag != "" && l.alloc.Order(req.Tag) == allocator.Strict {
		later, err := l.alloc.RequestForPeer(req.Tag, req.Count)
		return nil, later, err
	}
	return s.request(req.Tag, req.Count)
}

// refills reports whether this generator can refill a tag now.
func (l *lender) refills(s *service, tag string) bool {
	if tag == "" {
		return s.canServe()
	}
	_, more := l.alloc.Has(tag)
	return more && s.canServe()
}

// answer answers another generator.
func (l *lender) answer(s *service, req takeRequest, reply string, ranges []bus.Range, err error) {
	var body []byte
	if err == nil {
		body, err = s.encode(ranges, wire.Request{})
	}
	if err != nil {
		msg := errorMessage(toError(err), reply)
		if req.WaitMS <= 0 && err != allocator.ErrClosed && l.refills(s, req.Tag) {
			msg.Header.Set(wire.HeaderRefills, "true")
		}
		l.link.send(msg)
		return
	}
	msg := idsMessage(reply, l.alloc.Order(req.Tag), body)
	if p := l.cfg.Keys.Known(req.Tag); p != nil {
		msg.Header = nats.Header{
			wire.HeaderOrder: {string(allocator.OpaqueOrder(p.Domain()))}, wire.HeaderKey: {p.KeyID()}}
	}
	l.link.send(msg)
}

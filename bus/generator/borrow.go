package generator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// A generator that lacks the IDs for a request takes them from another generator, and answers the caller itself. So
// each request has one answer: if a message between the generators is lost, the request ends in the error that it would
// have had, and the IDs are a gap. The other generator takes them as for a caller of its own, and never asks a third.

const (
	// borrowWithin is how old a request may be when IDs for it are still asked of others. With the answer it is less
	// than the 2 s that callers usually wait.
	borrowWithin = 1500 * time.Millisecond
	// borrowTries bounds how many others are asked while a request waits, and again before it is refused: those that offer
	// IDs may run dry at the same time.
	borrowTries = 3
	// maxBorrowing bounds the requests of a kind for which others are asked at the same time. Each has a goroutine.
	maxBorrowing = 10_000
	// borrowWait bounds the wait for the IDs of one generator. After that another one is asked.
	borrowWait = 500 * time.Millisecond
	// offerWait bounds the wait for the first generator that has enough, or until all have answered that they have not.
	offerWait = 500 * time.Millisecond
	// refillOffer is by how much the offer of a generator that must refill comes later: one with IDs in memory is first.
	refillOffer = 20 * time.Millisecond
	// borrowSlow is how long a request waits, for anything but the allocator, before others are asked. See
	// [allocator.Waiter.SlowAt].
	borrowSlow = 100 * time.Millisecond
)

// haveQuestion asks the other generators who has Count IDs. No tag: snowflakes.
type haveQuestion struct {
	Run          string `json:"run"` // of the generator that asks
	Installation string `json:"installation"`
	Tag          string `json:"tag,omitempty"`
	Count        int64  `json:"count"`
}

// offer is the answer. Left is how many the generator can hand out.
type offer struct {
	Run  string `json:"run"`
	Left int64  `json:"left"`
}

// takeRequest asks one generator for IDs. They serve requests that were sent to another one. No tag: snowflakes.
type takeRequest struct {
	Tag    string `json:"tag,omitempty"`
	Count  int64  `json:"count"`
	WaitMS int64  `json:"wait_ms"` // how long the asking generator waits; 0: borrowWait
}

// takeSubject is where a run of a generator gets these. A later run under the same name has another one.
func takeSubject(run string) string { return wire.SubjectTake + "." + run }

// errBorrowed ends the wait of a request that has got its IDs from another generator.
var errBorrowed = errors.New("another generator had the IDs")

// lacksIDs reports whether an error says that this generator has no IDs for the request, which another one may have.
func lacksIDs(err error) bool {
	return slices.Contains([]bus.Reason{
		bus.StoreUnavailable, bus.Overloaded, bus.TimedOut, bus.Exhausted, bus.Draining, bus.ClockBackwards, bus.NoWorkerID,
	}, toError(err).Reason)
}

// mayBorrow reports whether another generator could have IDs for a request.
func (s *issuer) mayBorrow(a Answer) bool {
	now := time.Now()
	return now.Sub(a.begun) < borrowWithin && s.borrowing.Load() <= maxBorrowing && s.g.group.anyPeer(now, time.Time{}, s.offers)
}

// borrow takes n IDs for a request from another generator. It may be called while the request waits for those of this
// one.
func (s *issuer) borrow(a Answer, tag string, n int64) (ranges []bus.Range, ok bool) {
	s.borrowing.Add(1)
	defer s.borrowing.Add(-1)
	ctx, cancel := context.WithDeadline(context.Background(), a.begun.Add(borrowWithin))
	defer cancel()
	for try := 0; try < borrowTries && s.mayBorrow(a); try++ {
		run := s.g.whoHas(ctx, tag, n)
		if run == "" {
			break
		}
		ranges, err := s.g.takeFrom(ctx, run, tag, n)
		if err == nil {
			return ranges, true
		}
		s.g.log.Debug("another generator offered IDs, and does not have them", "tag", tag, "error", err)
		s.g.offers.forget(tag, run)
	}
	return nil, false
}

// takeFrom takes n IDs from another generator.
func (g *Generator) takeFrom(ctx context.Context, run, tag string, n int64) ([]bus.Range, error) {
	ctx, cancel := context.WithTimeout(ctx, borrowWait)
	defer cancel()
	end, _ := ctx.Deadline()
	below := g.alloc.Seen(tag)
	msg, err := g.cfg.Conn.RequestWithContext(ctx, takeSubject(run), wire.Encode(takeRequest{tag, n, time.Until(end).Milliseconds()}))
	if err == nil {
		err = bus.ReplyError(msg)
	}
	if err != nil {
		return nil, err
	}
	ranges, err := bus.ParseReply(msg.Data)
	if err != nil {
		return nil, err
	}
	// The record of a strict tag that was seen above these IDs went backwards. Of any other tag only the max_id of an
	// operator counts. It may have been set while the IDs were on their way, and this generator has confirmed that it
	// hands out none below.
	if msg.Header.Get(bus.HeaderOrder) == bus.OrderStrict {
		g.alloc.KnowStrict(tag)
	} else {
		below, _ = g.alloc.Forbids(tag)
	}
	if o := allocator.Order(msg.Header.Get(bus.HeaderOrder)); o.Domain() != "" {
		t := allocator.Tag{Name: tag, Order: o, KeyID: msg.Header.Get(wire.HeaderKey)}
		if err := g.cfg.Keys.Load(ctx, t); err != nil {
			return nil, fmt.Errorf("the numbers of an opaque tag cannot be concealed: %w", err)
		}
	}
	_, rules := g.alloc.Forbids(tag) // as with the floor
	left := n
	for _, r := range ranges {
		left -= r.Len()
		if r.First < below || rules.Paused || rules.Left(r.Last) == 0 {
			return nil, fmt.Errorf("it handed out %v, and an operator has forbidden that (IDs below %d, rules %+v)", ranges, below, rules)
		}
	}
	if left != 0 {
		return nil, fmt.Errorf("it handed out %v, and was asked for %d IDs", ranges, n)
	}
	return ranges, nil
}

// passOn asks the generator with this run to claim n IDs of a strict tag; see [allocator.Config]. One of another
// installation has other IDs of the same tag, and one that stops would have to stay for the requests of others.
func (g *Generator) passOn(ctx context.Context, run, tag string, n int64) (none allocator.Range, err error) {
	if !g.group.anyPeer(time.Now(), time.Time{}, func(b heartbeat) bool {
		return b.ID == run && b.Segment && b.Installation == g.installation()
	}) {
		return none, errors.New("the generator that claimed last is not heard, or cannot claim IDs")
	}
	ranges, err := g.takeFrom(ctx, run, tag, n)
	if err == nil && len(ranges) != 1 {
		err = fmt.Errorf("another generator claimed %v, and was asked for one range", ranges)
	}
	if err != nil {
		return none, err
	}
	return ranges[0], nil
}

// heardHave answers how many IDs another generator can take from this one. If this one has too few in memory and can
// reserve more, it offers any number, a little later.
func (g *Generator) heardHave(msg *nats.Msg) {
	var q haveQuestion
	if err := json.Unmarshal(msg.Data, &q); err != nil || msg.Reply == "" {
		g.log.Warn("a question about IDs in memory cannot be read", "error", err)
		return
	}
	if q.Run == g.group.self {
		return
	}
	mine := offer{Run: g.group.self}
	var refills bool
	switch {
	case q.Installation != g.installation() || !g.phase.serving.Load():
	case q.Tag == "" && g.canServe(g.snowflakes):
		mine.Left = math.MaxInt64
	case q.Tag != "" && g.canServe(g.segments):
		mine.Left, refills = g.alloc.Has(q.Tag)
	}
	if mine.Left >= q.Count || !refills {
		g.respond(msg.Reply, wire.Encode(mine))
		return
	}
	mine.Left = math.MaxInt64
	time.AfterFunc(refillOffer, func() { g.respond(msg.Reply, wire.Encode(mine)) })
}

// heardTake takes IDs for another generator.
func (g *Generator) heardTake(msg *nats.Msg) {
	var req takeRequest
	if err := json.Unmarshal(msg.Data, &req); err != nil || msg.Reply == "" {
		g.log.Warn("a request of another generator for IDs cannot be read", "error", err)
		return
	}
	s := g.segments
	if req.Tag == "" {
		s = g.snowflakes
	}
	reply := msg.Reply
	answer := func(ranges []bus.Range, err error) {
		var body []byte
		if err == nil {
			body, err = s.encode(ranges, bus.Request{})
		}
		if err != nil {
			g.respondMsg(errorMessage(toError(err), reply))
			return
		}
		msg := idsMessage(reply, g.Order(req.Tag), body)
		if p := g.cfg.Keys.Known(req.Tag); p != nil {
			msg.Header = nats.Header{bus.HeaderOrder: {string(allocator.OpaqueOrder(p.Domain()))}, wire.HeaderKey: {p.KeyID()}}
		}
		g.respondMsg(msg)
	}
	ranges, w, err := g.takeForPeer(s, req)
	if w == nil {
		answer(ranges, err)
		return
	}
	later := func() {
		wait := min(cmp.Or(time.Duration(req.WaitMS)*time.Millisecond, borrowWait), g.cfg.MaxWait)
		ctx, cancel := context.WithTimeoutCause(context.Background(), wait, allocator.ErrTimedOut)
		defer cancel()
		answer(w.Wait(ctx))
	}
	if !g.requests.start(later) {
		later() // nothing waits any more, so this ends at once
	}
}

// takeForPeer is what [issuer.request] is for callers. It never passes a request for a strict tag on again.
func (g *Generator) takeForPeer(s *issuer, req takeRequest) ([]bus.Range, waiter, error) {
	switch {
	case !g.phase.serving.Load(): // it does not hear its peers yet, or does not belong here
		return nil, nil, allocator.ErrClosed
	case req.Tag == "" || g.alloc.Order(req.Tag) != allocator.Strict:
		return s.request(Answer{Kind: s.kind, Transport: NATS, begun: time.Now()}, req.Tag, req.Count)
	}
	w, err := g.alloc.RequestForPeer(req.Tag, req.Count)
	if w == nil { // a nil *Waiter must not become an interface that is not nil
		return nil, nil, err
	}
	return nil, w, nil
}

package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// service answers requests for IDs of a kind: leaf-segment or leaf-snowflake.
//
// Each is a service of its own because it comes and goes. NATS prefers near generators even when
// they answer errors. So one that cannot serve leaves the queue group while a peer can serve.
//
//	serve (the loop of the generator)
//	└── stepAside       opens and closes it
//	queue.run
//	└── handle ─┐       a request over NATS
//	take ───────┴ begin a request in this process; it may wait at a gate
//	└── answer          answers it, lets it wait for its IDs, or asks others
type service struct {
	*common
	name        string
	description string
	kind        Kind
	queue       *queue
	// request takes IDs from memory, or they come later. Only segments have a tag.
	request func(tag string, n int64) ([]bus.Range, *allocator.Later, error)
	// starting is the error of requests in this process before the generator serves.
	starting error
	// healthy says why the service cannot answer with IDs; nil: it can.
	healthy func() error
	// offers reports whether the peer that sent this heartbeat can.
	offers func(heartbeat) bool

	held      atomic.Int64 // requests that wait at a gate
	borrowing atomic.Int64 // requests for which others are asked now
	aside     atomic.Bool  // it has left the queue group, because a peer can serve

	// Owned by the generator's loop.
	discovery *discovery // nil: the service is not in the queue group
	health    health
}

// common is what both services use. Each part has an owner of its own.
type common struct {
	*base
	subscriptions *subscriptions
	flakes        *flakes
	borrower      *borrower
	concealer     *concealer
	counts        *counts
	requests      *tasks      // those that wait, or ask others
	moving        func() bool // this generator moves to another NATS server
}

// enqueue gives the service a queue for the requests on subjects, by the names of its endpoints.
func (s *service) enqueue(endpoints ...micro.EndpointStats) *service {
	s.queue = newQueue(s.cfg.Conn, s.cfg.Log, s.name, endpoints...)
	s.queue.handle, s.queue.overloaded, s.queue.reconnect = s.handle, s.counts.overloaded, s.link.reconnect
	return s
}

// open enters the queue group.
func (s *service) open() (err error) {
	if s.discovery, err = discover(s.name, s.description, s.cfg.Node, s.queue); err != nil {
		return err
	}
	s.queue.do(func() { err = s.queue.join() })
	if err != nil {
		s.close()
	}
	return err
}

// close leaves the queue group. What was received is still answered.
func (s *service) close() {
	if s.discovery != nil {
		s.discovery.end()
		s.discovery = nil
		s.queue.do(s.queue.leave)
	}
}

// reopen forgets the requests that have come, because their callers have given up, and begins to
// take new ones.
func (s *service) reopen() (err error) {
	s.queue.do(func() { err = s.queue.again() })
	return err
}

// call is a request, and what becomes of it.
type call struct {
	Answer
	req   wire.Request
	ctx   context.Context
	reply string         // the subject of the answer, if it came over NATS
	got   chan<- outcome // gets the answer once, if it came from this process; else nil
}

// outcome is the answer to a request in this process. err is a *[bus.Error], or the context's.
type outcome struct {
	ids []bus.Range
	err error
}

// handle answers a request. If memory has the IDs, it answers at once. A request that must
// wait does not block it, so that one slow tag delays no other. It returns the error of its answer.
func (s *service) handle(msg *nats.Msg) *bus.Error {
	if !answerable(msg.Reply) {
		return nil // no caller would get the IDs
	}
	c := call{Answer: newAnswer(s.kind, NATS, tagOf(msg.Subject)), ctx: context.Background(), reply: msg.Reply}
	if s.group.away.drops(c.begun) {
		return nil
	}
	var err error
	if c.req, err = wire.ParseRequest(msg.Data); err != nil {
		err = badRequest("%v", err)
	}
	switch {
	case s.phase.refusing.Load():
		err = allocator.ErrClosed
	case err == nil:
		err = s.concealer.fits(c.Tag, c.req)
	}
	if err != nil {
		return s.refuse(c, err)
	}
	return s.begin(c)
}

// take takes IDs for a caller in this process, which may wait.
func (s *service) take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	got := make(chan outcome, 1)
	c := call{Answer: newAnswer(s.kind, HTTP, tag), req: wire.Request{Count: n}, ctx: ctx, got: got}
	switch {
	// Before the generator serves, it does not hear yet what its peers reserve. And a generator
	// that does not belong here must not serve its buffer.
	case !s.phase.await(ctx):
		s.refuse(c, s.starting)
	case s.concealer.isLarge(tag, n) && s.concealer.full(n):
		s.refuse(c, allocator.ErrOverloaded)
	default:
		s.begin(c)
	}
	is := <-got
	return is.ids, is.err
}

// answer answers a request, or lets it wait for its IDs. It returns the error of its answer.
func (s *service) answer(c call) *bus.Error {
	ranges, later, err := s.request(c.Tag, c.req.Count)
	switch {
	case later != nil:
		s.handleLater(c, later)
	case err == nil:
		return s.succeed(c, ranges)
	case !s.askOthers(c, err):
		return s.refuse(c, err)
	}
	return nil
}

// handleLater answers a request that must wait.
func (s *service) handleLater(c call, later *allocator.Later) {
	c.Waited = true
	answer := func(ranges []bus.Range, err error) {
		switch {
		case err == nil:
			s.succeed(c, ranges)
		case !s.askOthers(c, err):
			s.refuse(c, err)
		}
	}
	if !s.requests.enter() { // the generator stops: nothing waits any more, so this ends at once
		answer(later.Wait(context.Background()))
		return
	}
	given := context.AfterFunc(c.ctx, func() { later.Cancel(context.Cause(c.ctx)) })
	end := func(ranges []bus.Range, err error) {
		defer s.requests.leave()
		given()
		answer(ranges, err)
	}
	later.Then(end, func() { // it has waited for long
		if s.kind == SnowflakeKind && s.healthy() == nil && !s.flakes.State().Blocked {
			return // a large batch takes its time
		}
		if !s.mayBorrow(c.Answer, c.req.Count) {
			return
		}
		s.requests.start(func() {
			if ranges, ok := s.borrow(c.Answer, c.req.Count); ok && later.Withdraw() {
				s.counts.borrowed.Add(1)
				end(ranges, nil)
			}
		})
	})
}

// succeed answers a request with IDs. If that takes long, it starts a goroutine, and returns no
// error.
func (s *service) succeed(c call, ranges []bus.Range) *bus.Error {
	if !s.concealer.isLarge(c.Tag, c.req.Count) {
		return s.send(c, ranges)
	}
	if err := s.concealer.enter(c.req.Count); err != nil {
		return s.refuse(c, err)
	}
	send := func() {
		err := s.concealer.run(c.ctx, c.req.Count, func() { s.send(c, ranges) })
		if err != nil {
			s.refuse(c, err)
		}
	}
	if !s.requests.start(send) {
		send() // the generator stops
	}
	return nil
}

// send answers a request with these numbers of a tag.
func (s *service) send(c call, numbers []bus.Range) *bus.Error {
	ids, err := s.concealer.conceal(c.Tag, numbers)
	var body []byte
	if err == nil && c.got == nil {
		body, err = s.encode(ids, c.req)
	}
	if err != nil {
		return s.refuse(c, err)
	}
	s.counts.served(c.Answer, c.req.Count)
	if c.got != nil {
		c.got <- outcome{ids: ids}
		return nil
	}
	s.link.send(idsMessage(c.reply, s.alloc.Order(c.Tag), body))
	return nil
}

// encode is the reply with these ranges. If they do not fit into one message, their IDs are lost.
func (s *service) encode(ranges []bus.Range, req wire.Request) ([]byte, error) {
	body := wire.AppendReply(nil, ranges, req.JSON)
	if most := s.cfg.Conn.MaxPayload(); int64(len(body)) > most {
		return nil, &bus.Error{Code: 413, Reason: bus.BatchTooLarge, Message: fmt.Sprintf(
			"the IDs are too many runs for one NATS message of %d bytes: ask for fewer at a time", most)}
	}
	return body, nil
}

// refuse answers a request with an error.
func (s *service) refuse(c call, err error) *bus.Error {
	if c.ctx.Err() != nil && errors.Is(err, context.Cause(c.ctx)) {
		c.Reason = Canceled
		s.counts.observe(c.Answer)
		c.got <- outcome{err: err}
		return nil
	}
	e := s.counts.refused(c.Answer, err)
	if c.got != nil {
		c.got <- outcome{err: e}
	} else {
		s.link.send(errorMessage(e, c.reply))
	}
	return e
}

// askOthers answers a request later, with the IDs of another generator or else with err. It returns
// false if no other generator can have any.
func (s *service) askOthers(c call, err error) bool {
	if c.ctx.Err() != nil || !lacksIDs(err) || !s.mayBorrow(c.Answer, c.req.Count) {
		return false
	}
	return s.requests.start(func() {
		if !s.answerBorrowed(c) {
			s.refuse(c, err)
		}
	})
}

// answerBorrowed answers a request that does not wait for own IDs with those of another generator,
// if one has any.
func (s *service) answerBorrowed(c call) bool {
	ranges, ok := s.borrow(c.Answer, c.req.Count)
	if ok {
		s.counts.borrowed.Add(1)
		s.alloc.Borrowed(c.Tag, c.req.Count) // it has taken nothing from the quota
		s.succeed(c, ranges)
	}
	return ok
}

// left reports whether the services have left their queue groups, and all their requests were
// handled.
func left(services ...*service) bool {
	return !slices.ContainsFunc(services, func(s *service) bool { return !s.queue.left() })
}

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

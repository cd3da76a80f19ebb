package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// issuer is a micro service that answers requests for IDs: leaf-segment or leaf-snowflake.
//
// Each is a service of its own because it comes and goes. NATS prefers near generators even when
// they answer errors. So one that cannot serve leaves the queue group while a peer can serve.
type issuer struct {
	g           *Generator
	name        string
	description string
	endpoints   map[string]string // subjects by name
	// bounded are the subjects of an endpoint while there is a limit.
	//
	// In a cluster they must be subjects that nothing else subscribes to. If several callers meet the end of a
	// subscription that ends by itself, NATS servers count its end several times. So other servers of the cluster may
	// take a subject for one that nobody subscribes to. They learn better when somebody subscribes again, as a credit
	// does all the time.
	bounded map[string][]string
	kind    Kind
	// request takes IDs from memory, or returns a waiter that waits for them. Only segments have
	// a tag.
	request func(a Answer, tag string, n int64) ([]bus.Range, waiter, error)
	// starting is the error of requests in this process before the generator serves.
	starting error
	// healthy says why the service cannot answer with IDs; nil: it can.
	healthy func() error
	// offers reports whether the peer that sent this heartbeat can. One of another installation has other IDs.
	offers func(heartbeat) bool

	borrowing atomic.Int64             // requests for which others are asked now
	delivery  atomic.Pointer[delivery] // of the last opening
	crowd     crowd                    // of requests
	rests     atomic.Bool              // it is healthy, and not in the queue group yet

	// Owned by Generator.Run.
	service    micro.Service // nil: not in the queue group
	credits    []*credit     // its subscriptions if it has a limit; else service has them
	reconnects uint64        // of the connection, when it subscribed
	health     health
}

// request is what handle needs of a [micro.Request].
type request interface {
	Subject() string
	Reply() string
	Data() []byte
	Respond(body []byte, opts ...micro.RespondOpt) error
	Error(code, text string, body []byte, opts ...micro.RespondOpt) error
}

// plainRequest is a request that came through a [credit].
type plainRequest struct{ msg *nats.Msg }

func (r plainRequest) Subject() string { return r.msg.Subject }
func (r plainRequest) Reply() string   { return r.msg.Reply }
func (r plainRequest) Data() []byte    { return r.msg.Data }

func (r plainRequest) Respond(body []byte, _ ...micro.RespondOpt) error { return r.msg.Respond(body) }

func (r plainRequest) Error(code, text string, body []byte, _ ...micro.RespondOpt) error {
	return r.msg.RespondMsg(&nats.Msg{Data: body, Header: nats.Header{
		micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {text},
	}})
}

// waiter is a request that is answered later.
type waiter interface {
	Wait(context.Context) ([]bus.Range, error)
}

// delivery is what NATS delivers to one opening of a service. After renew it is old, and gets no answer.
type delivery struct{ old atomic.Bool }

// renew leaves the queue group, and stepAside enters it again: NATS passes only new requests to a new subscription.
func (s *issuer) renew() error {
	if s.service == nil {
		return nil
	}
	s.delivery.Load().old.Store(true)
	return s.close()
}

// mayLeave reports whether a queue group may be left now: NATS delivers. Otherwise a reconnect is near, after which the
// generator must leave again, see [leaving].
func (g *Generator) mayLeave() bool { return g.hears() }

// open enters the queue group.
func (s *issuer) open() error {
	s.delivery.Store(new(delivery))
	return s.subscribe()
}

// subscribe subscribes, with or without a limit.
func (s *issuer) subscribe() error {
	service, err := s.g.addService(s.name, s.description, nil)
	if err != nil {
		return err
	}
	s.service, s.reconnects = service, s.g.reconnects()
	d, limited := s.delivery.Load(), s.crowd.limited.Load()
	for name, subject := range s.endpoints {
		if limited && s.bounded[name] != nil {
			for _, subject := range s.bounded[name] {
				s.credits = append(s.credits, &credit{conn: s.g.cfg.Conn, subject: subject, window: &s.crowd.window,
					handle: func(msg *nats.Msg) { s.handle(d, plainRequest{msg}) }})
			}
			continue
		}
		handle := micro.HandlerFunc(func(r micro.Request) { s.handle(d, r) })
		if err := service.AddEndpoint(name, handle, micro.WithEndpointSubject(subject)); err != nil {
			return errors.Join(err, s.close())
		}
	}
	return s.grant()
}

// limitable reports whether the service may have a limit now, see bounded.
func (s *issuer) limitable() bool {
	return s.kind == SegmentKind || s.g.cfg.Conn.ConnectedClusterName() == ""
}

// grant lets NATS pass on as many requests as the limit allows.
func (s *issuer) grant() (err error) {
	for _, c := range s.credits {
		err = errors.Join(err, c.grant())
	}
	return err
}

// close leaves the queue group. What was received is still answered.
func (s *issuer) close() error {
	if s.service == nil {
		return nil
	}
	s.g.leaving.note(s.g.reconnects(), endpointSubscriptions(s.service)...)
	err := s.service.Stop()
	for _, c := range s.credits {
		s.g.leaving.note(s.g.reconnects(), c.end()...)
		err = errors.Join(err, c.close())
	}
	s.service, s.credits = nil, nil
	return err
}

// outdated reports whether a limit must begin, or end, or begin again after a reconnect: then requests may have been
// lost that NATS has counted. A limit begins also while heartbeats are late, because they wait as requests do.
func (s *issuer) outdated(now time.Time) bool {
	switch has, wants := s.credits != nil, s.crowd.limited.Load(); {
	case wants && !has:
		return s.g.cfg.Conn.IsConnected()
	case has:
		return (!wants || s.g.reconnects() != s.reconnects) && s.g.mayLeave()
	}
	return false
}

// reopen begins or ends a limit. It enters the queue group again before it leaves, so that it misses no request.
func (s *issuer) reopen() error {
	before := issuer{g: s.g, service: s.service, credits: s.credits}
	s.service, s.credits = nil, nil
	return errors.Join(s.subscribe(), before.close())
}

// able says why the service must not be asked; nil: it may be.
func (s *issuer) able() error {
	if s.g.spreading.moving.Load() {
		return errMoving
	}
	return cmp.Or(s.g.deaf(), s.healthy())
}

// stepAside leaves or enters the queue group, as this generator and its peers can serve.
//
// It leaves only if a peer has reported that it can serve, later than this generator became unable
// to. If two become unable at the same time, both stay.
func (s *issuer) stepAside(now time.Time) error {
	why := s.able()
	changed := s.health.note(now, why == nil)
	if changed && why != nil {
		time.AfterFunc(leaveAfter, func() { signal(s.g.group.peerChanged) })
	}
	since, bad := s.health.bad(now)
	aside := bad && s.g.group.anyPeer(now, since, s.offers)
	if rests := aside && why == nil; s.rests.Swap(rests) != rests || changed {
		s.g.sendHeartbeat(false)
	}
	switch {
	case aside && s.service != nil && !s.g.mayLeave():
		return nil
	case aside && s.service != nil:
		s.g.log.Warn("leaving the queue group, because another generator can serve", "service", s.name, "reason", why)
		s.health.left = true
		return s.close()
	case s.service != nil && s.outdated(now):
		return s.reopen()
	case aside || s.service != nil:
		return s.grant()
	}
	err := s.open()
	s.health.left = false
	if err == nil && s.g.phase.serving.Load() {
		s.g.log.Info("entered the queue group", "service", s.name)
	}
	return err
}

// handle answers a request. If memory has the IDs, it answers at once. A request that must
// wait does not block it, so that one slow tag delays no other.
func (s *issuer) handle(d *delivery, r request) {
	reply := r.Reply()
	if !answerable(reply) {
		return // no caller would get the IDs
	}
	s.crowd.read.Add(1)
	a := s.g.answer(s.kind, NATS)
	if d.old.Load() || s.g.group.away.drops(a.begun) {
		return
	}
	if s.g.phase.refusing.Load() {
		s.refuse(r, a, allocator.ErrClosed)
		return
	}
	tag := tagOf(r.Subject())
	a.Tag = tag
	req, err := bus.ParseRequest(r.Data())
	if err != nil {
		s.refuse(r, a, err)
		return
	}
	if err := s.g.fits(tag, req); err != nil {
		s.refuse(r, a, err)
		return
	}
	ranges, waiter, err := s.request(a, tag, req.Count)
	if waiter != nil {
		s.handleLater(reply, a, tag, req, waiter)
		return
	}
	if err != nil && s.askOthers(reply, a, tag, req, err) {
		return
	}
	if err == nil && s.g.isLarge(tag, req.Count) {
		s.succeed(reply, a, tag, req, ranges)
		return
	}
	var body []byte
	if err == nil {
		body, err = s.body(tag, ranges, req)
	}
	if err != nil {
		s.refuse(r, a, err)
		return
	}
	if err := r.Respond(body); err != nil {
		s.g.log.Debug("IDs are lost: the reply cannot be sent", "error", err) // Debug: one for each queued request
		return
	}
	s.g.served(a, req.Count)
}

// handleLater answers a request that must wait.
func (s *issuer) handleLater(reply string, a Answer, tag string, req bus.Request, w waiter) {
	a.Waited = true
	answer := func(ranges []bus.Range, err error) {
		switch {
		case err == nil:
			s.succeed(reply, a, tag, req, ranges)
		case !s.askOthers(reply, a, tag, req, err):
			s.g.refuse(reply, a, err)
		}
	}
	// The wait is bounded, and ends when the generator stops.
	if w, ok := w.(*allocator.Waiter); ok && s.g.requests.enter() { // a goroutine for each request would cost more than the rest
		w.Then(func(ranges []bus.Range, err error) {
			defer s.g.requests.leave()
			answer(ranges, err)
		}, func() {
			if !s.mayBorrow(a, req.Count) {
				return
			}
			s.g.requests.start(func() {
				if ranges, ok := s.borrow(a, tag, req.Count); ok && w.Withdraw() {
					defer s.g.requests.leave() // of the wait
					s.g.counts.borrowed.Add(1)
					s.succeed(reply, a, tag, req, ranges)
				}
			})
		})
		return
	}
	later := func() { answer(s.wait(context.Background(), a, tag, req.Count, w)) }
	if !s.g.requests.start(later) {
		later() // nothing waits any more, so this ends at once
	}
}

// wait waits for a request. If that takes long, it takes the IDs of another generator.
func (s *issuer) wait(ctx context.Context, a Answer, tag string, n int64, w waiter) (ranges []bus.Range, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slowAt := time.Now().Add(borrowSlow)
	if w, ok := w.(*allocator.Waiter); ok {
		slowAt = w.SlowAt()
	}
	var borrowed []bus.Range
	slow := time.AfterFunc(time.Until(slowAt), func() {
		if s.kind == SnowflakeKind && s.healthy() == nil && !s.g.flakes.State().Blocked {
			return // a large batch takes its time
		}
		s.g.tasks.do(func() {
			if ranges, ok := s.borrow(a, tag, n); ok {
				borrowed = ranges
				cancel(errBorrowed)
			}
		})
	})
	defer slow.Stop()
	ranges, err = w.Wait(ctx)
	if err != nil && context.Cause(ctx) == errBorrowed {
		s.borrowed(tag, n)
		return borrowed, nil
	}
	return ranges, err
}

// succeed answers a request outside its callback with IDs. It starts a goroutine if that takes long.
func (s *issuer) succeed(reply string, a Answer, tag string, req bus.Request, ranges []bus.Range) {
	if !s.g.isLarge(tag, req.Count) {
		s.send(reply, a, tag, req, ranges)
		return
	}
	if err := s.g.concealing.enter(req.Count); err != nil {
		s.g.refuse(reply, a, err)
		return
	}
	send := func() {
		err := s.g.concealing.run(context.Background(), req.Count, func() { s.send(reply, a, tag, req, ranges) })
		if err != nil {
			s.g.refuse(reply, a, err)
		}
	}
	if !s.g.requests.start(send) {
		send() // the generator stops
	}
}

// send answers a request outside its callback with these numbers of a tag.
func (s *issuer) send(reply string, a Answer, tag string, req bus.Request, ranges []bus.Range) {
	body, err := s.body(tag, ranges, req)
	if err != nil {
		s.g.refuse(reply, a, err)
		return
	}
	s.g.respondMsg(idsMessage(reply, s.g.Order(tag), body))
	s.g.served(a, req.Count)
}

// askOthers answers a request later, with the IDs of another generator or else with err. It returns false if no other
// generator can have any.
func (s *issuer) askOthers(reply string, a Answer, tag string, req bus.Request, err error) bool {
	if !lacksIDs(err) || !s.mayBorrow(a, req.Count) {
		return false
	}
	return s.g.requests.start(func() {
		if ranges, ok := s.borrow(a, tag, req.Count); ok {
			s.borrowed(tag, req.Count)
			s.succeed(reply, a, tag, req, ranges)
		} else {
			s.g.refuse(reply, a, err)
		}
	})
}

// borrowed notes that a request which waits no more got IDs of another generator. Its wait in vain took nothing from
// the quota.
func (s *issuer) borrowed(tag string, n int64) {
	s.g.counts.borrowed.Add(1)
	s.g.alloc.Borrowed(tag, n)
}

// body is the reply to a caller with these numbers of a tag.
func (s *issuer) body(tag string, numbers []bus.Range, req bus.Request) ([]byte, error) {
	ids, err := s.g.conceal(tag, numbers)
	if err != nil {
		return nil, err
	}
	return s.encode(ids, req)
}

// encode is the reply with these ranges. If they do not fit into one message, their IDs are lost.
func (s *issuer) encode(ranges []bus.Range, req bus.Request) ([]byte, error) {
	body := bus.AppendReply(nil, ranges, req.JSON)
	if most := s.g.cfg.Conn.MaxPayload(); int64(len(body)) > most {
		return nil, &bus.Error{Code: 413, Reason: bus.BatchTooLarge, Message: fmt.Sprintf(
			"the IDs are too many runs for one NATS message of %d bytes: ask for fewer at a time", most)}
	}
	return body, nil
}

// refuse answers within the callback with an error.
func (s *issuer) refuse(r request, a Answer, err error) {
	e := s.g.refused(a, err)
	if err := r.Error(strconv.Itoa(e.Code), e.Message, wire.Encode(e)); err != nil {
		s.g.log.Debug("a reply cannot be sent", "error", err)
	}
}

// take takes IDs for a caller in this process, which may wait. An error is a
// *[bus.Error], or the context's.
func (s *issuer) take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	a := s.g.answer(s.kind, HTTP)
	a.Tag = tag
	// Before the generator serves, it does not hear yet what its peers reserve. And a generator that
	// does not belong here must not serve its buffer.
	if !s.g.awaitServing(ctx) {
		return nil, s.g.refused(a, s.starting)
	}
	if s.g.isLarge(tag, n) && s.g.concealing.full(n) {
		return nil, s.g.refused(a, allocator.ErrOverloaded)
	}
	ranges, waiter, err := s.request(a, tag, n)
	if waiter != nil {
		a.Waited = true
		s.g.requests.do(func() { ranges, err = s.wait(ctx, a, tag, n, waiter) })
	}
	if err != nil && ctx.Err() == nil && lacksIDs(err) {
		if borrowed, ok := s.borrow(a, tag, n); ok {
			s.borrowed(tag, n)
			ranges, err = borrowed, nil
		}
	}
	if err == nil {
		ranges, err = s.g.concealFor(ctx, tag, n, ranges)
	}
	switch {
	case err == nil:
		s.g.served(a, n)
		return ranges, nil
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		a.Reason = Canceled
		s.g.observe(a)
		return nil, err
	default:
		return nil, s.g.refused(a, err)
	}
}

// startPatience is how long a caller in this process waits while the generator starts: less than the 2 s that callers
// usually wait.
const startPatience = time.Second

// awaitServing waits while the generator starts.
func (g *Generator) awaitServing(ctx context.Context) bool {
	if g.phase.serving.Load() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	select {
	case <-g.phase.begun:
	case <-ctx.Done():
	}
	return g.phase.serving.Load() // not if Run has failed
}

// Take returns n IDs of tag as leaf.segment.<tag> does, for the HTTP server in the generator's
// process. It waits for them if it must. An error is a *[bus.Error], or the context's.
func (g *Generator) Take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	return g.segments.take(ctx, tag, n)
}

// Order returns the order of a tag whose IDs this generator has handed out; of other tags it may not know it.
func (g *Generator) Order(tag string) allocator.Order { return g.alloc.Order(tag) }

// Snowflakes returns n snowflakes as leaf.snowflake does. Otherwise it is like Take.
func (g *Generator) Snowflakes(ctx context.Context, n int64) ([]bus.Range, error) {
	return g.snowflakes.take(ctx, "", n)
}

// Initialised reports whether the store has been opened, and the tags of the start exist.
func (g *Generator) Initialised() bool { return g.phase.prepared.Load() }

// Wanted reports whether requests of a kind should come to this generator, as issuer does for
// NATS: it can answer them with IDs, or hears of no other generator that can.
func (g *Generator) Wanted(kind Kind) bool {
	s := g.segments
	if kind == SnowflakeKind {
		s = g.snowflakes
	}
	if !g.phase.serving.Load() || g.phase.draining.Load() {
		return false
	}
	if s.healthy() == nil {
		return true
	}
	return g.hears() && !g.group.anyPeer(time.Now(), time.Time{}, s.offers) // a generator that is cut off hears no peer
}

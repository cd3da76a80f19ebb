package generator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
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
	kind        Kind
	// request takes IDs from memory, or returns a waiter that waits for them. Only segments have
	// a tag.
	request func(a Answer, tag string, n int64) ([]bus.Range, waiter, error)
	// starting is the error of requests in this process before the generator serves.
	starting error
	// healthy says why the service cannot answer with IDs; nil: it can.
	healthy func() error
	// offers reports whether the generator that sent this heartbeat can.
	offers func(heartbeat) bool

	// Owned by Generator.Run.
	service        micro.Service // nil: not in the queue group
	unhealthySince time.Time     // since when it cannot serve; zero: it can
}

// waiter is a request that is answered later.
type waiter interface {
	Wait(context.Context) ([]bus.Range, error)
}

// open enters the queue group.
func (s *issuer) open() error {
	service, err := s.g.addService(s.name, s.description, nil)
	if err != nil {
		return err
	}
	for name, subject := range s.endpoints {
		if err := service.AddEndpoint(name, micro.HandlerFunc(s.handle), micro.WithEndpointSubject(subject)); err != nil {
			return errors.Join(err, service.Stop())
		}
	}
	s.service = service
	return nil
}

// close leaves the queue group. What was received is still answered.
func (s *issuer) close() error {
	if s.service == nil {
		return nil
	}
	err := s.service.Stop()
	s.service = nil
	return err
}

// stepAside leaves or enters the queue group, as this generator and its peers can serve.
//
// It leaves only if a peer has reported that it can serve, later than this generator became unable
// to. If two become unable at the same time, both stay.
func (s *issuer) stepAside(now time.Time) error {
	why := s.healthy()
	if healthy := why == nil; healthy != s.unhealthySince.IsZero() {
		s.unhealthySince = time.Time{}
		if !healthy {
			s.unhealthySince = now
		}
		s.g.sendHeartbeat(false)
	}
	aside := !s.unhealthySince.IsZero() && s.g.group.anyPeer(now, s.unhealthySince, s.offers)
	switch {
	case aside && s.service != nil:
		s.g.log.Warn("leaving the queue group, because another generator can serve", "service", s.name, "reason", why)
		return s.close()
	case aside || s.service != nil:
		return nil
	}
	err := s.open()
	if err == nil && s.g.phase.serving.Load() {
		s.g.log.Info("entered the queue group", "service", s.name)
	}
	return err
}

// handle answers a request. If memory has the IDs, it answers at once. A request that must
// wait gets a goroutine of its own, so that one slow tag delays no other.
func (s *issuer) handle(r micro.Request) {
	reply := r.Reply()
	if reply == "" {
		return // no caller would get the IDs
	}
	a := s.g.answer(s.kind, NATS)
	req, err := bus.ParseRequest(r.Data())
	if err != nil {
		s.refuse(r, a, err)
		return
	}
	ranges, waiter, err := s.request(a, tagOf(r.Subject()), req.Count)
	if waiter != nil {
		s.handleLater(reply, a, req, waiter)
		return
	}
	var body []byte
	if err == nil {
		body, err = s.body(ranges, req)
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
func (s *issuer) handleLater(reply string, a Answer, req bus.Request, w waiter) {
	a.Waited = true
	later := func() {
		// The wait is bounded, and ends when the generator stops.
		ranges, err := w.Wait(context.Background())
		var body []byte
		if err == nil {
			body, err = s.body(ranges, req)
		}
		if err != nil {
			s.g.refuse(reply, a, err)
			return
		}
		s.g.respond(reply, body)
		s.g.served(a, req.Count)
	}
	if !s.g.requests.start(later) {
		later() // nothing waits any more, so this ends at once
	}
}

// body is the reply with these ranges. If they do not fit into one message, their IDs are lost.
func (s *issuer) body(ranges []bus.Range, req bus.Request) ([]byte, error) {
	body := bus.AppendReply(nil, ranges, req.JSON)
	if most := s.g.cfg.Conn.MaxPayload(); int64(len(body)) > most {
		return nil, &bus.Error{Code: 413, Reason: bus.BatchTooLarge, Message: fmt.Sprintf(
			"the IDs are too many runs for one NATS message of %d bytes: ask for fewer at a time", most)}
	}
	return body, nil
}

// refuse answers within the callback with an error.
func (s *issuer) refuse(r micro.Request, a Answer, err error) {
	e := s.g.refused(a, err)
	if err := r.Error(strconv.Itoa(e.Code), e.Message, wire.Encode(e)); err != nil {
		s.g.log.Debug("a reply cannot be sent", "error", err)
	}
}

// take takes IDs for a caller in this process, which may wait. An error is a
// *[bus.Error], or the context's.
func (s *issuer) take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	a := s.g.answer(s.kind, HTTP)
	// Before the generator serves, it does not hear yet what its peers reserve. And a generator that
	// does not belong here must not serve its buffer.
	if !s.g.phase.serving.Load() {
		return nil, s.g.refused(a, s.starting)
	}
	ranges, waiter, err := s.request(a, tag, n)
	if waiter != nil {
		a.Waited = true
		s.g.requests.do(func() { ranges, err = waiter.Wait(ctx) })
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

// Take returns n IDs of tag as leaf.segment.<tag> does, for the HTTP server in the generator's
// process. It waits for them if it must. An error is a *[bus.Error], or the context's.
func (g *Generator) Take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	return g.segments.take(ctx, tag, n)
}

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

package generator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/snowflake"
)

// gate is what requests wait at while this generator is away, or learns what happened meanwhile.
type gate int

const (
	gateNATS       gate = iota // IDs of tags, also those that another generator borrows. Strict tags need no gate.
	gateHTTP                   // IDs of tags. HTTP is served also without NATS.
	gateSnowflakes             // over both
)

var errUnchecked = fmt.Errorf("%w: the generator was cut off, and has not checked its worker's record since",
	snowflake.ErrNoWorker)

// err is the error of requests for which it did not open in time.
func (g gate) err() error {
	if g == gateSnowflakes {
		return errUnchecked
	}
	return allocator.ErrTimedOut
}

// shut returns the gate at which a request must wait. ok is false if it need not.
func (s *service) shut(a Answer) (g gate, ok bool) {
	switch {
	case s.kind == SnowflakeKind:
		g = gateSnowflakes
		if a.Transport == NATS { // one over HTTP must not wait for the connection's lock
			s.link.look()
		}
	case a.Transport == HTTP:
		g = gateHTTP
	}
	if !s.group.away.isShut(g, a.begun) {
		return g, false
	}
	if s.kind == SnowflakeKind {
		return g, s.flakes.noWorker() == nil
	}
	return g, idspace.CheckTag(a.Tag) == nil && s.alloc.Order(a.Tag) != allocator.Strict
}

// begin answers a request. If a gate is shut it waits first: with at most MaxWaiting others, in a
// goroutine of its own. It returns the error of its answer.
func (s *service) begin(c call) *bus.Error {
	g, ok := s.shut(c.Answer)
	if !ok {
		return s.answer(c)
	}
	c.Waited = true
	if s.held.Add(1) > s.cfg.MaxWaiting {
		s.held.Add(-1)
		return s.refuse(c, allocator.ErrOverloaded)
	}
	if !s.requests.start(func() { s.hold(c, g) }) {
		s.held.Add(-1)
		return s.refuse(c, allocator.ErrClosed)
	}
	return nil
}

// hold answers a request when its gate opens. It asks others if that takes long, and waits for at
// most gateFor.
func (s *service) hold(c call, g gate) {
	defer s.held.Add(-1)
	err := s.await(c.ctx, g, borrowSlow)
	if errors.Is(err, g.err()) {
		if s.answerBorrowed(c) {
			return
		}
		err = s.await(c.ctx, g, gateFor-borrowSlow)
	}
	switch {
	case err == nil && !s.phase.serving.Load(): // the generator failed while this request waited
		s.refuse(c, allocator.ErrClosed)
	case err == nil:
		s.answer(c)
	case !s.askOthers(c, err):
		s.refuse(c, err)
	}
}

// await waits until a gate is open, for at most so long.
func (s *service) await(ctx context.Context, g gate, most time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, g.err())
	defer cancel()
	for {
		changed := s.group.away.shutUntil(g, at(time.Now()))
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

package generator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// members returns the other generators that are there, and the nodes of those that fell silent.
// After a pause of its own it fails for a moment: the others have not fallen
// silent, but this generator has yet to look at what they said meanwhile.
func (g *Generator) members(now time.Time) (here []heartbeat, lost []string, err error) {
	here, lost = g.group.members(now)
	if g.group.pulse.age(now) > overdue {
		err = errSilent
	}
	return here, lost, err
}

// hearOthers waits until all generators that run have been heard: one that has
// just started, or was cut off, knows of the others only when their heartbeats have come.
func (g *Generator) hearOthers(ctx context.Context) error {
	since := func() time.Duration { return min(time.Since(g.group.listening), g.guard.since(time.Now())) }
	if since() >= heartbeatExpires {
		return nil
	}
	subject, err := micro.ControlSubject(micro.PingVerb, wire.ServiceLeaf, "")
	if err != nil {
		return err
	}
	missing := make(map[string]bool) // by node
	ask, cancel := context.WithTimeout(ctx, bus.DefaultTimeout)
	defer cancel()
	err = wire.AskAll(ask, g.cfg.Conn, subject, nil, func(msg *nats.Msg) error {
		var ping micro.Ping
		if err := json.Unmarshal(msg.Data, &ping); err != nil {
			return err
		}
		missing[ping.Metadata["node"]] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: the other generators cannot be asked: %w", allocator.ErrUnavailable, err)
	}
	delete(missing, g.cfg.Node)
	for {
		newcomer := g.group.awaitNewcomer()
		for _, b := range g.group.present(time.Now()) {
			delete(missing, b.Node)
		}
		left := heartbeatExpires - since()
		if len(missing) == 0 || left <= 0 { // those that are missing have gone
			return nil
		}
		select {
		case <-newcomer:
		case <-time.After(left):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// announce sends a heartbeat and waits until NATS has passed it on.
func (g *Generator) announce(ctx context.Context) error {
	number := g.sendHeartbeat(false)
	if err := g.cfg.Conn.FlushWithContext(ctx); err != nil {
		return err
	}
	g.group.pulse.came(time.Now(), number)
	return nil
}

// sendHeartbeat tells the others that this generator is there; gone is its last word. It returns
// the heartbeat's number.
func (g *Generator) sendHeartbeat(gone bool) (number uint64) {
	number = g.group.pulse.send(time.Now())
	b := heartbeat{Node: g.cfg.Node, ID: g.group.self, Number: number, UnixMS: g.cfg.Snowflake.Clock().Wall, Segment: g.canServe(g.segments), Snowflake: g.canServe(g.snowflakes), Gone: gone}
	if worker := g.flakes.Worker(); worker >= 0 && !gone {
		b.Worker = &worker
	}
	b.Lost = g.group.lostWorkers.workers(time.Now())
	if identity := g.membership.identity.Load(); identity != nil {
		b.Identity = *identity
	}
	if err := g.cfg.Conn.Publish(wire.SubjectPresence, wire.Encode(b)); err != nil {
		g.log.Debug("a heartbeat cannot be sent", "error", err)
	}
	return number
}

// heardHeartbeat takes in another generator's heartbeat, and greets one that is new, so that
// it knows of this one before its first second is over.
func (g *Generator) heardHeartbeat(msg *nats.Msg) {
	now := time.Now()
	b, isNew := g.group.hear(now, g.cfg.Snowflake.Clock().Wall, msg.Data)
	if isNew {
		g.sendHeartbeat(false)
	}
	if isNew && b.Node == g.cfg.Node {
		g.log.Warn("another generator has this one's name: nobody can tell them apart in events and metrics; give each its own (--node)", "node", b.Node)
	}
	if b.Worker != nil && *b.Worker == g.flakes.Worker() {
		g.verifyWorker() // one of the two is a clone, or the registry was restored
	}
	if !b.Gone {
		g.checkRival(b)
	}
}

// handOverTime is some time longer than a heartbeat takes to be heard and a queue group to be entered.
const handOverTime = 100 * time.Millisecond

// handOver is the time in which generators that had stepped aside come back, as they have
// heard that this one leaves; requests are still answered. Without it they could find nobody.
func (g *Generator) handOver() {
	if g.cfg.Conn.IsConnected() && len(g.group.present(time.Now())) > 0 {
		time.Sleep(handOverTime)
	}
}

// canServe reports whether a service can answer with IDs.
func (g *Generator) canServe(s *issuer) bool {
	return !g.phase.draining.Load() && s.healthy() == nil
}

// peersKnown reports whether the other generators have had time to say which workers they
// hold and which installation they are part of.
func (g *Generator) peersKnown(now time.Time) bool {
	if g.unchecked() || g.guard.since(now) < heartbeatExpires {
		return false
	}
	if g.membership.identity.Load() != nil {
		return true
	}
	for _, b := range g.group.present(now) {
		if b.Installation != "" && b.Installation != g.cfg.Installation {
			return false // it will be refused when it joins
		}
	}
	return true
}

package generator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// sendHeartbeat sends a heartbeat to the peers, and returns its number. A generator
// sends the last one (gone) when it has ended.
func (g *Generator) sendHeartbeat(gone bool) (number uint64) {
	return g.send(heartbeat{Gone: gone})
}

// send sends b, completed by the state of this generator, and returns its number.
func (g *Generator) send(b heartbeat) (number uint64) {
	b.Node, b.ID, b.Number, b.UnixMS = g.cfg.Node, g.group.self, g.group.away.send(at(time.Now())), g.cfg.Snowflake.Clock().Wall
	b.Format, b.Polls, b.Opaque = allocator.RecordFormat, g.alloc.Polled(), g.cfg.Index.Opaque() != ""
	b.Server, b.Stays = g.cfg.Conn.ConnectedServerId(), g.spreading.stays(time.Now())
	// A service that rests does not count, because two could rely on each other.
	b.Segment = g.canServe(g.segments) && !g.segments.rests.Load()
	b.Snowflake = g.canServe(g.snowflakes) && !g.snowflakes.rests.Load()
	if worker := g.flakes.Worker(); worker >= 0 && !b.Gone {
		b.Worker = &worker
		if state := g.flakes.State(); state.Worker == worker {
			b.ReservedUntil = state.ReservedUntil
		}
	}
	_, b.LostNodes = g.group.lost.lasting(time.Now())
	b.Lost = g.group.lostWorkers(time.Now()) // after Worker: a worker that is lost meanwhile is in one of the two
	if identity := g.membership.identity.Load(); identity != nil {
		b.Identity = *identity
	} else {
		b.Witness = g.cfg.Witness
	}
	if err := g.cfg.Conn.Publish(wire.SubjectPresence, wire.Encode(b)); err != nil {
		g.log.Debug("a heartbeat cannot be sent", "error", err)
	}
	return b.Number
}

// sendHeartbeats sends a heartbeat each second until the context is done. A stop needs it: until a generator has ended,
// its peers must not count it as lost.
func (g *Generator) sendHeartbeats(ctx context.Context) {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.sendHeartbeat(false)
		}
	}
}

// announce sends a heartbeat and waits until NATS has passed it on.
func (g *Generator) announce(ctx context.Context) error {
	number := g.sendHeartbeat(false)
	if err := g.cfg.Conn.FlushWithContext(ctx); err != nil {
		return err
	}
	g.group.away.came(at(time.Now()), number)
	return nil
}

// heardHeartbeat notes a heartbeat. It answers the first one of a peer with a heartbeat, so that
// the peer need not wait a second for it.
func (g *Generator) heardHeartbeat(msg *nats.Msg) {
	b, isNew := g.group.hear(time.Now(), g.cfg.Snowflake.Clock().Wall, msg.Data)
	if isNew {
		g.sendHeartbeat(false)
		if b.Node == g.cfg.Node {
			g.log.Warn("another generator has this one's name, so events and metrics mix the two: give each its own name (--node)",
				"node", b.Node)
		}
	}
	if b.Worker != nil && *b.Worker == g.flakes.Worker() {
		g.group.away.relearn(theWorker) // one of the two is a clone, or the registry was restored
	}
	if b.Released != nil {
		g.group.lost.release(time.Now(), *b.Released)
	}
	if !g.membership.isRival(b) {
		g.group.learn(time.Now(), b.LostNodes, g.cfg.Node)
	}
	if !b.Gone {
		g.membership.checkRival(b)
	}
}

// canServe reports whether a service can answer with IDs.
func (g *Generator) canServe(s *service) bool { return !g.phase.draining.Load() && s.able() == nil }

// hearPeers waits until this generator has had a heartbeat of each one that runs. After its
// start, and after it was cut off, it knows only the peers whose heartbeats have come since.
func (g *Generator) hearPeers(ctx context.Context) error {
	since := func() time.Duration { return g.heardFor(time.Now()) }
	if s := since(); s >= heartbeatExpires || time.Since(time.Unix(0, g.heardPeers.Load())) < s {
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
		if len(missing) == 0 || left <= 0 { // the missing ones have stopped
			g.heardPeers.Store(time.Now().UnixNano())
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

// peersKnown reports whether the other generators have had time to report which workers they
// hold, and which installation they belong to.
func (g *Generator) peersKnown(now time.Time) bool {
	if g.lookAtConnection(); g.group.away.missed(now) {
		return false
	}
	// Beside a generator of another installation, this one will be refused when it joins.
	return g.membership.identity.Load() != nil || !g.group.anyPeer(now, time.Time{}, func(b heartbeat) bool {
		return b.Installation != "" && b.Installation != g.cfg.Installation
	})
}

// othersTime is a little longer than it takes to hear a heartbeat and to enter a queue group.
const othersTime = 100 * time.Millisecond

// awaitOthers waits while generators that had stepped aside come back, because they have heard that this one leaves.
// Without it a request could find no generator. If there is no other generator, it refuses new requests while those
// wait that were accepted, or until another generator comes, so that callers learn why they get no IDs.
func (g *Generator) awaitOthers(ctx context.Context) {
	newcomer := g.group.awaitNewcomer()
	switch {
	case !g.cfg.Conn.IsConnected():
	case len(g.group.present(time.Now())) > 0:
		time.Sleep(othersTime)
	default:
		if err := g.cfg.Conn.FlushWithContext(ctx); err != nil { // what came before is accepted
			g.log.Debug("NATS does not answer", "error", err)
		}
		g.segments.queue.do(g.segments.queue.drain)
		g.snowflakes.queue.do(g.snowflakes.queue.drain)
		g.phase.refusing.Store(true)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			defer cancel()
			select {
			case <-newcomer:
			case <-ctx.Done():
			}
		}()
		g.requests.wait(ctx)
	}
}

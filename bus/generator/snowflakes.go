package generator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// newSnowflakes returns the service leaf-snowflake: it answers leaf.snowflake.
func newSnowflakes(g *Generator) *service {
	s := &service{
		g: g, name: wire.ServiceSnowflake, kind: SnowflakeKind, description: "IDs of a time, a worker and a sequence number",
		request: func(a Answer, _ string, n int64) ([]bus.Range, *allocator.Later, error) {
			if why := g.noWorker(); why != nil {
				return nil, nil, why
			}
			if a.Transport == NATS { // one over HTTP must not wait for the connection's lock
				g.lookAtConnection()
			}
			if g.group.away.isShut(gateSnowflakes, a.begun) {
				take := func(ctx context.Context) ([]bus.Range, error) {
					if why := g.noWorker(); why != nil {
						return nil, why
					}
					return g.flakes.Take(ctx, n)
				}
				w, err := g.group.away.hold(gateSnowflakes, g.cfg.MaxWaiting, g.cfg.MaxWait, snowflake.ErrTimedOut, take)
				return nil, w, err
			}
			ranges, w, err := g.flakes.Request(nil, n)
			if w == nil {
				return ranges, nil, err
			}
			return nil, &w.Later, nil
		},
		healthy: func() error {
			if g.group.away.isShut(gateSnowflakes, time.Now()) {
				return errUnchecked
			}
			return cmp.Or(g.noWorker(), g.flakes.State().Err)
		},
		starting: fmt.Errorf("%w: %w", snowflake.ErrNoWorker, errStarting),
		offers:   func(b heartbeat) bool { return b.Snowflake && !g.membership.isRival(b) },
	}
	return s.enqueue(micro.EndpointStats{Name: "snowflake", Subject: bus.SubjectSnowflake})
}

// newFlakes returns the generator of snowflakes. It asks this generator about its peers, and
// reports its events to it.
func (g *Generator) newFlakes() *snowflake.Generator {
	cfg := g.cfg.Snowflake
	cfg.Node, cfg.Log = g.cfg.Node, g.log
	cfg.MaxBatch, cfg.MaxWait, cfg.MaxWaiting = g.cfg.MaxBatch, g.cfg.MaxWait, g.cfg.MaxWaiting
	cfg.Registry = joinedRegistry{cfg.Registry, g.membership.joined}
	cfg.HeldByPeerLately = func(worker int64) bool { return g.group.claimed(time.Now(), worker) }
	cfg.HeldByPeer = func(worker int64) bool { return g.group.held(time.Now(), worker) }
	cfg.PeersKnown = func() bool { return g.peersKnown(time.Now()) }
	cfg.PeerClocks = g.peerClocks
	cfg.Notify = func(e snowflake.Event) {
		g.publish(snowflakeEvent(g.cfg.Node, g.cfg.RegistryKind, e))
		if lost, ok := e.(snowflake.WorkerLost); ok {
			g.group.claimLost(time.Now(), lost.Worker)
		}
		signal(g.changed) // the heartbeat says which worker is held
	}
	return snowflake.New(cfg)
}

// runFlakes issues snowflakes until the context is done, and ends the generator if their start
// is refused. It waits for the installation only if the data folder does not name it.
func (g *Generator) runFlakes(ctx context.Context) {
	installation := g.cfg.Installation
	if installation == "" {
		select {
		case <-g.membership.joined:
			installation = g.membership.identity.Load().Installation
		case <-ctx.Done():
			return
		}
	}
	if err := g.flakes.Run(ctx, installation); err != nil {
		g.fail(err)
	}
}

var errNotJoined = errors.New("the installation has not been joined yet")

// noWorker says why no worker may be taken; nil: one may.
func (g *Generator) noWorker() error {
	if g.cfg.Installation != "" {
		return nil
	}
	return g.notJoined()
}

// notJoined says why the installation has not been joined; nil: it has. No other step than join has
// failed until then.
func (g *Generator) notJoined() error {
	if g.membership.identity.Load() != nil {
		return nil
	}
	if why := g.phase.unready.Load(); why != nil {
		// %v: the request lacks a worker, not the store.
		return fmt.Errorf("%w: %w: %v", snowflake.ErrNoWorker, errNotJoined, *why)
	}
	return fmt.Errorf("%w: %w", snowflake.ErrNoWorker, errNotJoined)
}

// joinedRegistry is a registry that is not asked before the generator has joined its
// installation, because the registry may belong to another one.
type joinedRegistry struct {
	snowflake.Registry
	joined <-chan struct{}
}

// List implements [snowflake.Registry]. All writes come after it.
func (r joinedRegistry) List(ctx context.Context) ([]snowflake.Entry, error) {
	select {
	case <-r.joined:
		return r.Registry.List(ctx)
	case <-ctx.Done():
		return nil, errNotJoined
	}
}

// decode answers leaf.decode.
func (g *Generator) decode(r micro.Request) {
	if !answerable(r.Reply()) {
		return
	}
	a := g.admin.begin()
	decoded, err := g.Decode(string(bytes.TrimSpace(r.Data())))
	if err != nil {
		g.admin.refuse(r.Reply(), a, err)
		return
	}
	g.admin.respond(r.Reply(), a, &nats.Msg{Data: wire.Encode(decoded)})
}

// Decode returns the parts of a snowflake in decimal. An error is a *[bus.Error].
func (g *Generator) Decode(text string) (bus.Decoded, error) {
	id, ok := wire.ParseID([]byte(text))
	if !ok {
		return bus.Decoded{}, badRequest("%s is not a snowflake: send its decimal number", wire.Quote([]byte(text)))
	}
	p, err := g.cfg.Snowflake.Layout.Decode(id)
	if err != nil {
		return bus.Decoded{}, toError(err)
	}
	return decoded(id, p), nil
}

func decoded(id int64, p snowflake.Parts) bus.Decoded {
	return bus.Decoded{
		ID: bus.ID(id), Time: time.UnixMilli(p.UnixMS).UTC().Format(snowflake.TimeFormat),
		UnixMS: p.UnixMS, Worker: p.Worker, Sequence: p.Sequence,
	}
}

// answerClock answers leaf.clock, if the generator holds a worker.
func (g *Generator) answerClock(r micro.Request) {
	if worker := g.flakes.Worker(); worker >= 0 && answerable(r.Reply()) {
		now := g.cfg.Snowflake.Clock().Wall
		g.respond(r.Reply(), wire.Encode(bus.ClockReply{Node: g.cfg.Node, Worker: worker, UnixMS: now}))
	}
}

// peerClocks asks the other generators for their clocks, and returns by how much each is ahead of
// this machine's clock. It takes half of the round trip for the way of an answer.
func (g *Generator) peerClocks(ctx context.Context) []time.Duration {
	ctx, cancel := context.WithTimeout(ctx, bus.DefaultTimeout)
	defer cancel()
	clock := g.cfg.Snowflake.Clock
	var ahead []time.Duration
	sent := clock().Wall
	err := wire.AskAll(ctx, g.cfg.Conn, bus.SubjectClock, nil, func(msg *nats.Msg) error {
		var reply bus.ClockReply
		if err := json.Unmarshal(msg.Data, &reply); err != nil {
			g.log.Debug("a reply about the clock cannot be read", "error", err)
			return nil
		}
		if reply.Node != g.cfg.Node {
			ahead = append(ahead, time.Duration(reply.UnixMS-(sent+clock().Wall)/2)*time.Millisecond)
		}
		return nil
	})
	if err != nil {
		g.log.Debug("the other generators cannot be asked for their clocks", "error", err)
	}
	return ahead
}

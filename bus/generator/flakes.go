package generator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// flakes generates snowflakes, and connects that to this generator's peers:
//
//	newFlakes      what the snowflake generator asks and reports
//	run            keeps a worker
//	answerClock    leaf.clock; peerClocks asks it
//
// Its methods are safe for concurrent use. It has no lock.
type flakes struct {
	*snowflake.Generator
	*base
}

// newFlakes returns the generator of snowflakes.
func newFlakes(b *base, findings *findings) *flakes {
	f, cfg, group := &flakes{base: b}, b.cfg, b.group
	c := cfg.Snowflake
	c.Node, c.Log = cfg.Node, cfg.Log
	c.MaxBatch, c.MaxWait, c.MaxWaiting = cfg.MaxBatch, cfg.MaxWait, cfg.MaxWaiting
	c.Registry = joinedRegistry{c.Registry, b.membership.joined}
	c.HeldByPeerLately = func(worker int64) bool { return group.claimed(time.Now(), worker) }
	c.HeldByPeer = func(worker int64) bool { return group.held(time.Now(), worker) }
	c.PeersKnown = func() bool { return b.heartbeats.peersKnown(time.Now()) }
	c.PeerClocks = f.peerClocks
	c.Notify = func(e snowflake.Event) {
		findings.publish(snowflakeEvent(cfg.Node, cfg.RegistryKind, e))
		if lost, ok := e.(snowflake.WorkerLost); ok {
			group.claimLost(time.Now(), lost.Worker)
		}
		signal(b.heartbeats.changed) // the heartbeat says which worker is held
	}
	f.Generator = snowflake.New(c)
	return f
}

// run issues snowflakes until the context is done, and ends the generator if their start is
// refused. It waits for the installation only if the data folder does not name it.
func (f *flakes) run(ctx context.Context) {
	installation := f.cfg.Installation
	if installation == "" {
		select {
		case <-f.membership.joined:
			installation = f.membership.installation()
		case <-ctx.Done():
			return
		}
	}
	if err := f.Run(ctx, installation); err != nil {
		f.phase.fail(err)
	}
}

var errNotJoined = errors.New("the installation has not been joined yet")

// noWorker says why no worker may be taken; nil: one may.
func (f *flakes) noWorker() error {
	if f.cfg.Installation != "" {
		return nil
	}
	return f.notJoined()
}

// notJoined says why the installation has not been joined; nil: it has. No other step than join has
// failed until then.
func (f *flakes) notJoined() error {
	if f.membership.identity.Load() != nil {
		return nil
	}
	if why := f.phase.unready.Load(); why != nil {
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

// answerClock answers leaf.clock, if the generator holds a worker.
func (f *flakes) answerClock(r micro.Request) {
	if worker := f.Worker(); worker >= 0 && answerable(r.Reply()) {
		now := f.cfg.Snowflake.Clock().Wall
		f.link.send(&nats.Msg{Subject: r.Reply(), Data: wire.Encode(
			wire.ClockReply{Node: f.cfg.Node, Worker: worker, UnixMS: now})})
	}
}

// peerClocks asks the other generators for their clocks, and returns by how many ms each is ahead
// of this machine's clock. It takes half of the round trip for the way of an answer.
func (f *flakes) peerClocks(ctx context.Context) []int64 {
	ctx, cancel := context.WithTimeout(ctx, wire.DefaultTimeout)
	defer cancel()
	clock := f.cfg.Snowflake.Clock
	var ahead []int64
	sent := clock().Wall
	err := wire.AskAll(ctx, f.cfg.Conn, wire.SubjectClock, nil, func(msg *nats.Msg) error {
		var reply wire.ClockReply
		if err := json.Unmarshal(msg.Data, &reply); err != nil {
			f.cfg.Log.Debug("a reply about the clock cannot be read", "error", err)
			return nil
		}
		if reply.Node != f.cfg.Node {
			ahead = append(ahead, reply.UnixMS-(sent+clock().Wall)/2)
		}
		return nil
	})
	if err != nil {
		f.cfg.Log.Debug("the other generators cannot be asked for their clocks", "error", err)
	}
	return ahead
}

package generator

import (
	"context"
	"encoding/json"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// tellClock answers leaf.clock, if the generator holds a worker.
func (g *Generator) tellClock(r micro.Request) {
	worker := g.flakes.Worker()
	if worker < 0 || r.Reply() == "" {
		return
	}
	g.respond(r.Reply(), wire.Encode(bus.ClockReply{Node: g.cfg.Node, Worker: worker, UnixMS: g.cfg.Snowflake.Clock().Wall}))
}

// peerClocks asks the other generators for their clocks, and returns by how
// much each is ahead of this machine's. The way of an answer is taken for half of
// the round trip.
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
		g.log.Debug("the clocks of the other generators cannot be asked", "error", err)
	}
	return ahead
}

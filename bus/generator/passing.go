package generator

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

// passTries is how many peers are asked, one after the other.
const passTries = 3

// passing passes an administrative request on to peers, because any generator may get one, and its
// store or its registry may be unavailable only here. It does so unless something may have been
// written. A peer never passes it on. Its methods are safe for concurrent use.
type passing struct{ *base }

// isAway reports whether an error says that the store or the registry is unavailable, and that
// nothing was written.
func isAway(e *bus.Error) bool { return e.Reason == bus.StoreUnavailable || e.Reason == bus.NoWorkerID }

// pass passes a request on that failed here, and returns the answer of a peer, or the error of the
// request.
func (p *passing) pass(ctx context.Context, e adminEndpoint, body []byte, failure *bus.Error) (*nats.Msg, error) {
	end, _ := ctx.Deadline() // each administrative request has one
	for _, b := range p.peers() {
		if ctx.Err() != nil {
			break
		}
		msg := nats.NewMsg(wire.SubjectAdmin + "." + b.ID + "." + e.name())
		msg.Header.Set(wire.HeaderTimeout, strconv.FormatInt(time.Until(end).Milliseconds(), 10))
		msg.Data = body
		answer, err := p.cfg.Conn.RequestMsgWithContext(ctx, msg)
		switch {
		case errors.Is(err, nats.ErrNoResponders): // it has stopped
			continue
		case err != nil && e.kind == change:
			return nil, newError(bus.TimedOut, "%s; generator %s, which was asked instead, did not answer: %v; %v",
				failure.Message, b.Node, err, allocator.ErrUncertain)
		case err != nil:
			return nil, failure
		}
		refusal, refused := errors.AsType[*bus.Error](bus.ReplyError(answer))
		if !refused || !isAway(refusal) {
			return answer, nil
		}
		failure.Message += "; " + refusal.Message
	}
	return nil, failure
}

// peers returns some peers that can reserve IDs, so that their store is likely to be there. A
// generator that has not joined its installation yet takes that of its peers for its own.
func (p *passing) peers() (peers []heartbeat) {
	for _, b := range p.group.present(time.Now()) {
		if b.Segment {
			peers = append(peers, b)
		}
	}
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	return peers[:min(passTries, len(peers))]
}

// storeTime bounds the wait for the own store, so that time is left to pass the request on.
func (p *passing) storeTime(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok || len(p.peers()) == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

package generator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// Any generator may get an administrative request. If its store or its registry is unavailable, a peer may still reach
// them. So the generator passes the request on, unless something may have been written. The peer never passes it on.

// passTries is how many peers are asked, one after the other.
const passTries = 3

// adminSubject is where a run of a generator gets such requests: then a dot, and the name of the request.
func adminSubject(run string) string { return wire.SubjectAdmin + "." + run }

// isAway reports whether an error says that the store or the registry is unavailable, and that nothing was written.
func isAway(e *bus.Error) bool { return e.Reason == bus.StoreUnavailable || e.Reason == bus.NoWorkerID }

// passAdmin passes a request on that failed here, and returns the answer of a peer, or the error of the request.
func (g *Generator) passAdmin(ctx context.Context, r adminRequest, changes bool, failure *bus.Error) (*nats.Msg, error) {
	if r.passed || !isAway(failure) {
		return nil, failure
	}
	for _, b := range g.adminPeers() {
		end, ok := ctx.Deadline()
		if ctx.Err() != nil || !ok {
			break
		}
		msg := nats.NewMsg(adminSubject(b.ID) + "." + strings.TrimPrefix(r.subject, adminPrefix))
		msg.Header.Set(wire.HeaderTimeout, strconv.FormatInt(time.Until(end).Milliseconds(), 10))
		msg.Data = r.body
		answer, err := g.cfg.Conn.RequestMsgWithContext(ctx, msg)
		switch {
		case errors.Is(err, nats.ErrNoResponders): // it has stopped
			continue
		case err != nil && changes:
			return nil, unconfirmed(fmt.Errorf("%s; generator %s, which was asked instead, did not answer: %w", failure.Message, b.Node, err),
				allocator.ErrUncertain.Error())
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

// adminPeers returns some peers that can reserve IDs, so that their store is likely to be there. A generator that has
// not joined its installation yet takes that of its peers for its own.
func (g *Generator) adminPeers() (peers []heartbeat) {
	own := g.installation()
	for _, b := range g.group.present(time.Now()) {
		if b.Segment && (own == "" || b.Installation == own) {
			peers = append(peers, b)
		}
	}
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	return peers[:min(passTries, len(peers))]
}

// storeTime bounds the wait for the own store, so that time is left to pass the request on.
func (g *Generator) storeTime(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok || len(g.adminPeers()) == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// heardAdmin carries out a request that a peer passes on.
func (g *Generator) heardAdmin(msg *nats.Msg) {
	handle := g.admin[adminPrefix+strings.TrimPrefix(msg.Subject, adminSubject(g.group.self)+".")]
	switch {
	case !answerable(msg.Reply):
		return
	case handle == nil, !g.phase.serving.Load():
		g.refuse(msg.Reply, g.answer(AdminKind, NATS), g.named(errNotYet))
		return
	}
	handle(adminRequest{msg.Subject, msg.Reply, msg.Header, msg.Data, true})
}

// named returns an error of an administrative request. It names this generator if the fault may be its own.
func (g *Generator) named(err error) *bus.Error {
	e := *toError(storeError(err))
	if e.Code >= 500 {
		e.Message = fmt.Sprintf("generator %s: %s", g.cfg.Node, e.Message)
	}
	return &e
}

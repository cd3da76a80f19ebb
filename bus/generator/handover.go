package generator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

// A generator that stops hands its unused IDs over to its peers, so that they are no gap.
//
//	Generator.stop
//	└── handover.run      for some tags at a time, after their IDs have left memory: asks the peers
//	    └── give.<run>    that can serve, until each tag is taken by one (heardGive)
//
// A peer says which tags it takes. If its answer is lost, their IDs are a gap. They are never sent
// again.

const (
	// handOverWithin bounds the hand-over, and giveWithin the wait for one answer.
	handOverWithin = time.Second
	giveWithin     = 500 * time.Millisecond
	// mostHandedOver bounds the tags of a message, and giftSize is the most that one of them takes,
	// in bytes: its name, and eight ranges.
	mostHandedOver = 256
	giftSize       = 1200
)

// giveRequest hands IDs over.
type giveRequest struct {
	Installation string           `json:"installation"`
	Gifts        []allocator.Gift `json:"gifts"`
}

// giveReply is how many IDs of them are in memory now, and for which tags there was room. The
// others' were not taken.
type giveReply struct {
	IDs  int64    `json:"ids"`
	Tags []string `json:"tags"`
}

// handover hands IDs over at a stop, and takes over those of peers. Its methods are safe for
// concurrent use. It has no lock, because it remembers nothing.
type handover struct {
	*base
	borrower *borrower // knows the peers that can serve
	offers   func(heartbeat) bool
}

// receives reports whether this generator takes IDs over: it serves, is of the same installation,
// and knows what operators have set.
func (h *handover) receives(installation string) bool {
	return h.phase.serving.Load() && !h.phase.draining.Load() && installation == h.membership.installation() &&
		!h.link.away.isShut(gateNATS, time.Now())
}

// heardGive takes over what a peer hands over.
func (h *handover) heardGive(msg *nats.Msg) {
	var req giveRequest
	if err := json.Unmarshal(msg.Data, &req); err != nil {
		h.cfg.Log.Warn("what another generator wants to hand over cannot be read", "error", err)
		return
	}
	h.link.tasks.start(func() {
		ctx, cancel := context.WithTimeout(h.phase.life, handOverWithin)
		defer cancel()
		var reply giveReply
		if h.receives(req.Installation) {
			reply.IDs, reply.Tags = h.alloc.Accept(ctx, req.Gifts[:min(len(req.Gifts), mostHandedOver)])
		}
		h.link.send(&nats.Msg{Subject: msg.Reply, Data: wire.Encode(reply)})
	})
}

// run hands the unused IDs over to the peers. Until it has ended, this generator knows what
// operators set.
func (h *handover) run(ctx context.Context) {
	own := h.membership.installation()
	if own == "" || !h.cfg.Conn.IsConnected() || h.link.away.isShut(gateNATS, time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverWithin)
	defer cancel()
	size := int(min(max(h.cfg.Conn.MaxPayload()/giftSize, 1), mostHandedOver))
	tags, runs := h.alloc.Unused(), h.borrower.lenders("", h.offers)
	ids, left := int64(0), 0
	for len(tags) > 0 && len(runs) > 0 && ctx.Err() == nil {
		some := tags[:min(size, len(tags))]
		tags = tags[len(some):]
		gifts := h.alloc.Yield(some)
		for _, run := range slices.Clone(runs) {
			given, err := h.give(ctx, run, giveRequest{own, gifts})
			if err != nil {
				runs = slices.DeleteFunc(runs, func(r string) bool { return r == run })
			}
			if err != nil && !errors.Is(err, nats.ErrNoResponders) { // without responders it has ended, and has nothing
				h.cfg.Log.Warn("a generator does not say whether it has taken IDs over: they may be a gap",
					"run", run, "error", err)
				gifts = nil
			}
			ids += given.IDs
			gifts = slices.DeleteFunc(gifts, func(g allocator.Gift) bool { return slices.Contains(given.Tags, g.Tag) })
			if len(gifts) == 0 {
				break
			}
		}
		left += len(gifts)
	}
	if ids > 0 {
		h.cfg.Log.Info("unused IDs were handed over to other generators", "ids", ids, "tags left", left+len(tags))
	}
}

// give hands IDs over to a peer.
func (h *handover) give(ctx context.Context, run string, req giveRequest) (reply giveReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, giveWithin)
	defer cancel()
	msg, err := h.cfg.Conn.RequestWithContext(ctx, wire.SubjectGive+"."+run, wire.Encode(req))
	if err == nil {
		err = bus.ReplyError(msg)
	}
	if err == nil {
		err = json.Unmarshal(msg.Data, &reply)
	}
	return reply, err
}

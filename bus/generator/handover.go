package generator

import (
	"context"
	"encoding/json"
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
//	└── handover.run      for each peer that can serve, and for some tags at a time:
//	    ├── room.<run>    names of tags → those that the peer has room for (heardRoom)
//	    └── give.<run>    the ranges, once, after they have left memory (heardGive)
//
// If an answer is lost, the ranges are a gap. They are never sent again.

const (
	// handOverWithin bounds the hand-over, and roomWithin the wait for one answer.
	handOverWithin = time.Second
	roomWithin     = 300 * time.Millisecond
	// mostHandedOver bounds the tags of a message, and giftSize is the most that one of them takes, in bytes: its name,
	// and eight ranges.
	mostHandedOver = 256
	giftSize       = 1200
)

// roomRequest asks whether a peer has room for IDs of these tags.
type roomRequest struct {
	Installation string   `json:"installation"`
	Tags         []string `json:"tags"`
}

// roomReply names the tags for which there is room.
type roomReply struct {
	Tags []string `json:"tags"`
}

// giveRequest hands IDs over.
type giveRequest struct {
	Installation string           `json:"installation"`
	Gifts        []allocator.Gift `json:"gifts"`
}

// giveReply is how many IDs of them are in memory now.
type giveReply struct {
	IDs int64 `json:"ids"`
}

// handover hands IDs over at a stop, and takes over those of peers. Its methods are safe for concurrent use. It has no
// lock, because it remembers nothing.
type handover struct {
	*base
	borrower *borrower // knows the peers that can serve
	offers   func(heartbeat) bool
}

// receives reports whether this generator takes IDs over: it serves, is of the same installation, and knows what
// operators have set.
func (h *handover) receives(installation string) bool {
	return h.phase.serving.Load() && !h.phase.draining.Load() && installation == h.membership.installation() &&
		!h.link.away.isShut(gateNATS, time.Now())
}

// heardRoom says for which tags of a peer there is room.
func (h *handover) heardRoom(msg *nats.Msg) {
	var req roomRequest
	h.heard(msg, &req, &req.Installation, func(ctx context.Context) any {
		return roomReply{h.alloc.Room(ctx, req.Tags[:min(len(req.Tags), mostHandedOver)])}
	})
}

// heardGive takes over what a peer hands over.
func (h *handover) heardGive(msg *nats.Msg) {
	var req giveRequest
	h.heard(msg, &req, &req.Installation, func(ctx context.Context) any {
		return giveReply{h.alloc.Accept(ctx, req.Gifts[:min(len(req.Gifts), mostHandedOver)])}
	})
}

// heard reads a request of a peer, and answers it with what do returns. If this generator takes no IDs over, it answers
// that it took nothing.
func (h *handover) heard(msg *nats.Msg, req any, installation *string, do func(context.Context) any) {
	if err := json.Unmarshal(msg.Data, req); err != nil {
		h.cfg.Log.Warn("what another generator wants to hand over cannot be read", "error", err)
		return
	}
	h.link.tasks.start(func() {
		ctx, cancel := context.WithTimeout(h.phase.life, handOverWithin)
		defer cancel()
		var reply any = struct{}{}
		if h.receives(*installation) {
			reply = do(ctx)
		}
		h.link.send(&nats.Msg{Subject: msg.Reply, Data: wire.Encode(reply)})
	})
}

// run hands the unused IDs over to the peers. Until it has ended, this generator knows what operators set.
func (h *handover) run(ctx context.Context) {
	own := h.membership.installation()
	if own == "" || !h.cfg.Conn.IsConnected() || h.link.away.isShut(gateNATS, time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverWithin)
	defer cancel()
	size := int(min(max(h.cfg.Conn.MaxPayload()/giftSize, 1), mostHandedOver))
	tags, ids := h.alloc.Unused(), int64(0)
	for _, run := range h.borrower.lenders("", h.offers) {
		var left []string // that this one has no room for
		for ; len(tags) > 0 && ctx.Err() == nil; tags = tags[min(size, len(tags)):] {
			some := tags[:min(size, len(tags))]
			var room roomReply
			if err := h.ask(ctx, wire.SubjectRoom+"."+run, roomRequest{own, some}, &room); err != nil {
				h.cfg.Log.Debug("a generator does not say whether it has room for IDs", "run", run, "error", err)
				break
			}
			for _, tag := range some {
				if !slices.Contains(room.Tags, tag) {
					left = append(left, tag)
				}
			}
			var given giveReply
			req := giveRequest{own, h.alloc.Yield(room.Tags)}
			if len(req.Gifts) == 0 {
				continue
			}
			if err := h.ask(ctx, wire.SubjectGive+"."+run, req, &given); err != nil {
				h.cfg.Log.Warn("a generator does not say whether it has taken IDs over: they may be a gap",
					"run", run, "error", err)
			}
			ids += given.IDs
		}
		tags = append(left, tags...)
	}
	if ids > 0 {
		h.cfg.Log.Info("unused IDs were handed over to other generators", "ids", ids, "tags left", len(tags))
	}
}

// ask sends one request to a peer, and reads its reply.
func (h *handover) ask(ctx context.Context, subject string, req, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, roomWithin)
	defer cancel()
	msg, err := h.cfg.Conn.RequestWithContext(ctx, subject, wire.Encode(req))
	if err == nil {
		err = bus.ReplyError(msg)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(msg.Data, reply)
}

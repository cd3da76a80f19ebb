package generator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"sync"
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
//	    ├── room.<run>    names of tags → those that the peer has room for, and a token (heardRoom)
//	    └── give.<run>    the ranges, once, after they have left memory; the token is good for one (heardGive)
//
// If an answer is lost, the ranges are a gap. They are never sent again.

const (
	// handOverWithin bounds the hand-over, roomWithin the wait for one answer, and a token lasts for giveWithin.
	handOverWithin = time.Second
	roomWithin     = 300 * time.Millisecond
	giveWithin     = time.Second
	// mostHandedOver bounds the tags of a message, and giftSize is the most that one of them takes, in bytes: its name,
	// and eight ranges.
	mostHandedOver = 256
	giftSize       = 1200
	// maxRooms bounds the tokens.
	maxRooms = 100
)

// roomRequest asks whether a peer has room for IDs of these tags.
type roomRequest struct {
	Installation string   `json:"installation"`
	Tags         []string `json:"tags"`
}

// roomReply names the tags for which there is room.
type roomReply struct {
	Token string   `json:"token,omitempty"`
	Tags  []string `json:"tags"`
}

// giveRequest hands IDs over.
type giveRequest struct {
	Installation string           `json:"installation"`
	Token        string           `json:"token"`
	Gifts        []allocator.Gift `json:"gifts"`
}

// giveReply is how many IDs of them are in memory now.
type giveReply struct {
	IDs int64 `json:"ids"`
}

// handover hands IDs over at a stop, and takes over those of peers. Its methods are safe for concurrent use.
type handover struct {
	cfg        *Config
	phase      *phase
	link       *link
	membership *membership
	alloc      *allocator.Allocator
	borrower   *borrower // knows the peers that can serve
	offers     func(heartbeat) bool

	mu    sync.Mutex
	rooms map[string]heldRoom // that wait for IDs, by token
}

// heldRoom is a room since it was offered.
type heldRoom struct {
	*allocator.Room
	made moment
}

// open keeps a room, and returns its token; empty: there are too many.
func (h *handover) open(now time.Time, room *allocator.Room) (token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.rooms, func(_ string, r heldRoom) bool { return at(now).since(r.made) > giveWithin })
	if len(h.rooms) >= maxRooms {
		return ""
	}
	if h.rooms == nil {
		h.rooms = make(map[string]heldRoom)
	}
	token = rand.Text()
	h.rooms[token] = heldRoom{room, at(now)}
	return token
}

// take returns the room of a token once, if it is not too old; nil: there is none.
func (h *handover) take(now time.Time, token string) *allocator.Room {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.rooms[token]
	delete(h.rooms, token)
	if !ok || at(now).since(r.made) > giveWithin {
		return nil
	}
	return r.Room
}

// receives reports whether this generator takes IDs over: it serves, is of the same installation, and knows what
// operators have set.
func (h *handover) receives(installation string) bool {
	return h.phase.serving.Load() && !h.phase.draining.Load() && installation == h.membership.installation() &&
		!h.link.away.isShut(gateNATS, time.Now())
}

// heardRoom makes room for what a peer wants to hand over.
func (h *handover) heardRoom(msg *nats.Msg) {
	var req roomRequest
	if err := json.Unmarshal(msg.Data, &req); err != nil || len(req.Tags) > mostHandedOver {
		h.cfg.Log.Warn("a question of another generator for room cannot be read", "error", err)
		return
	}
	h.link.tasks.start(func() {
		made, is := time.Now(), roomReply{}
		if h.receives(req.Installation) {
			ctx, cancel := context.WithTimeout(h.phase.life, roomWithin)
			room := h.alloc.Room(ctx, req.Tags)
			cancel()
			if is.Tags = room.Tags(); len(is.Tags) > 0 {
				is.Token = h.open(made, room)
			}
		}
		h.link.send(&nats.Msg{Subject: msg.Reply, Data: wire.Encode(is)})
	})
}

// heardGive takes over what a peer hands over.
func (h *handover) heardGive(msg *nats.Msg) {
	var req giveRequest
	if err := json.Unmarshal(msg.Data, &req); err != nil {
		h.cfg.Log.Warn("IDs that another generator hands over cannot be read: they are a gap", "error", err)
		return
	}
	h.link.tasks.start(func() {
		is := giveReply{}
		if room := h.take(time.Now(), req.Token); room != nil && h.receives(req.Installation) {
			is.IDs = room.Accept(req.Gifts)
		}
		h.link.send(&nats.Msg{Subject: msg.Reply, Data: wire.Encode(is)})
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
			wanted := make(map[string]bool)
			for _, tag := range room.Tags {
				wanted[tag] = room.Token != ""
			}
			for _, tag := range some {
				if !wanted[tag] {
					left = append(left, tag)
				}
			}
			var given giveReply
			if len(wanted) == 0 || room.Token == "" {
				continue
			}
			req := giveRequest{own, room.Token, h.alloc.Yield(room.Tags)}
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

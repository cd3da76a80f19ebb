package generator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

// hearWithin is how long a peer may take to answer with a heartbeat.
const hearWithin = 500 * time.Millisecond

// heartbeats are what generators send each other about themselves:
//
//	run ── send             each second, and at each change
//	NATS ── heard           group and membership take them in
//	hearPeers, peersKnown   whether all that run were heard
//
// The methods are safe for concurrent use.
type heartbeats struct {
	*base
	flakes               *flakes
	segments, snowflakes *service
	spreading            *spreading

	changed  chan struct{} // holds one when the peers need a heartbeat at once, because the state has changed
	heardAll atomic.Int64  // when it had last heard all that run, Unix ns

	sending sync.Mutex // so that the last heartbeat that peers hear is the newest
	gone    bool       // the last one was sent
}

// send sends b, completed by the state of this generator, and returns its number. After the last
// one it sends nothing: the peers would take this generator for lost.
func (h *heartbeats) send(b heartbeat) (number uint64) {
	h.sending.Lock()
	defer h.sending.Unlock()
	if h.gone {
		return 0
	}
	now := time.Now()
	h.gone = b.Gone
	b.Node, b.ID, b.UnixMS = h.cfg.Node, h.group.self, h.cfg.Snowflake.Clock().Wall
	b.Number = h.group.away.send(at(now))
	b.Polls, b.Opaque = h.alloc.Polled(), h.cfg.Index.Opaque() != ""
	b.Server, b.Stays = h.cfg.Conn.ConnectedServerId(), h.spreading.stays(now)
	// A service that is still aside does not count, because two could rely on each other.
	segmentsAside, snowflakesAside := h.segments.aside.Load(), h.snowflakes.aside.Load()
	b.Segment = h.segments.canServe() && !segmentsAside
	b.Snowflake = h.snowflakes.canServe() && !snowflakesAside
	b.Aside = segmentsAside || snowflakesAside
	if worker := h.flakes.Worker(); worker >= 0 && !b.Gone {
		b.Worker = &worker
		if state := h.flakes.State(); state.Worker == worker {
			b.ReservedUntil = state.ReservedUntil
		}
	}
	_, lost := h.group.lost(now)
	for _, p := range lost {
		b.LostNodes = append(b.LostNodes, p.lostNode(now))
	}
	b.Lost = h.group.lostWorkers(now) // after Worker: a worker that is lost meanwhile is in one of the two
	if identity := h.membership.identity.Load(); identity != nil {
		b.Identity = *identity
	} else {
		b.Witness = h.cfg.Witness
	}
	h.link.send(&nats.Msg{Subject: wire.SubjectPresence, Data: wire.Encode(b)})
	return b.Number
}

// now sends a heartbeat.
func (h *heartbeats) now() { h.send(heartbeat{}) }

// run sends a heartbeat each second, and when the state has changed, until the context is done. It
// goes on through a stop: until a generator has ended, its peers must not count it as lost.
func (h *heartbeats) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			h.now()
		case <-h.changed:
			h.now()
			signal(h.group.look)
		}
	}
}

// announce sends a heartbeat and waits until NATS has passed it on.
func (h *heartbeats) announce() error {
	number := h.send(heartbeat{})
	if err := h.link.flush(); err != nil {
		return err
	}
	h.group.away.came(at(time.Now()), number)
	return nil
}

// heard notes a heartbeat. It answers with one if it is asked, and if the peer may not have heard
// this generator yet, so that the peer need not wait a second for it.
func (h *heartbeats) heard(msg *nats.Msg) {
	now := time.Now()
	b, isNew := h.group.hear(now, h.cfg.Snowflake.Clock().Wall, msg.Data)
	if isNew || b.Asks {
		h.now()
	}
	if isNew && b.Node == h.cfg.Node {
		h.cfg.Log.Warn("another generator has this one's name, so events and metrics mix the two: "+
			"give each its own name (--node)", "node", b.Node)
	}
	if b.Worker != nil && *b.Worker == h.flakes.Worker() {
		h.group.away.relearn(theWorker) // one of the two is a clone, or the registry was restored
	}
	if b.Forgotten != "" {
		h.group.forget(now, b.Forgotten)
	}
	if len(b.LostNodes) > 0 {
		steady, _ := h.group.away.steadySince(now)
		for _, node := range h.group.learn(now, steady, b, h.cfg.Node) {
			h.send(heartbeat{Forgotten: node})
		}
	}
	if !b.Gone {
		h.membership.checkRival(b)
	}
}

// hearPeers waits until each peer that runs has sent a heartbeat. After its start, and after it was
// cut off, this generator knows only those whose heartbeats have come since, so it asks all for
// one.
func (h *heartbeats) hearPeers(ctx context.Context) error {
	since := h.link.heardFor(time.Now())
	if since >= heartbeatExpires || time.Since(time.Unix(0, h.heardAll.Load())) < since {
		return nil
	}
	h.send(heartbeat{Asks: true})
	within, cancel := context.WithTimeout(ctx, hearWithin)
	defer cancel()
	_, err := h.cfg.Conn.RequestWithContext(within, "$SRV.PING."+wire.ServiceLeaf, nil)
	if !errors.Is(err, nats.ErrNoResponders) { // else no generator serves: the first start need not wait
		<-within.Done()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case h.link.heardFor(time.Now()) < hearWithin:
			return fmt.Errorf("%w: the other generators cannot be asked: %w", allocator.ErrUnavailable, errCutOff)
		}
	}
	h.heardAll.Store(time.Now().UnixNano())
	return nil
}

// peersKnown reports whether the other generators have had time to report which workers they
// hold, and which installation they belong to.
func (h *heartbeats) peersKnown(now time.Time) bool {
	if h.link.look(); h.group.away.missed(now) {
		return false
	}
	// Beside a generator of another installation, this one will be refused when it joins.
	return h.membership.identity.Load() != nil || !h.group.anyPeer(now, time.Time{}, func(b heartbeat) bool {
		return b.Installation != "" && b.Installation != h.cfg.Installation
	})
}

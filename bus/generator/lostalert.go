package generator

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// watchLost publishes the alerts about lost peers and their ends until the context is done. It does not use the queue
// of events: an alert that waited there while the stream was unavailable might be wrong when it is published.
func (g *Generator) watchLost(ctx context.Context) {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	recalled := false
	var failed time.Time // when the stream did not answer last
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		lost, begin, end := g.group.judge(time.Now(), g.cfg.Node)
		for _, l := range lost {
			g.log.Warn("a generator is lost: its heartbeats stopped, and it did not report that it ends", "node", l.node,
				"last_heard", l.heard.UTC().Format(time.RFC3339))
		}
		var err error
		switch {
		case !recalled:
			err = g.recallLost(ctx)
			recalled = err == nil
		case time.Since(failed) < heartbeatExpires: // the peers may have returned with the stream: wait until they are heard
			if len(begin)+len(end) > 0 {
				_, err = g.lastLost(ctx, g.cfg.Node)
			}
		default:
			err = g.publishLosses(ctx, begin, end)
		}
		if err != nil {
			failed = time.Now()
			g.log.Debug("alerts about lost generators cannot be published; trying again", "error", err)
		}
	}
}

// publishLosses publishes alerts and ends until the stream does not answer.
func (g *Generator) publishLosses(ctx context.Context, begin, end []lostPeer) error {
	for _, l := range begin {
		if err := g.publishLost(ctx, l); err != nil {
			return err
		}
	}
	for _, l := range end {
		if err := g.publishReturned(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// lostAlert is the last alert about a lost node in the event stream. The zero value: there is none.
type lostAlert struct {
	sequence uint64
	id       string
	body     events.Lost
	open     bool // its end is not in the stream
}

// lastLost reads the last alert about a node. Every peer publishes it, and the server recognizes equal IDs for two
// minutes only. A peer that was cut off itself comes later.
func (g *Generator) lastLost(ctx context.Context, node string) (a lostAlert, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	msg, err := audit.Last(ctx, g.cfg.JS, wire.LostSubject+node)
	if err != nil || msg == nil {
		return a, err
	}
	a.sequence = msg.Sequence
	if e, err := events.Parse(msg.Subject, msg.Header, msg.Data); err == nil {
		a.id, a.open = e.ID, true
		a.body, _ = e.Body.(events.Lost)
	}
	for after := a.sequence; a.open; {
		msg, err := audit.Next(ctx, g.cfg.JS, wire.NodeRecovered+node, after)
		if err != nil || msg == nil {
			return a, err
		}
		after = msg.Sequence
		if e, err := events.Parse(msg.Subject, msg.Header, msg.Data); err == nil {
			body, _ := e.Body.(events.Recovered)
			a.open = body.Episode != events.EpisodeLost // the same subject has the ends of node.stale
		}
	}
	return a, nil
}

// publishLost publishes the alert about a lost peer, unless another peer has done it.
func (g *Generator) publishLost(ctx context.Context, l lostPeer) error {
	last, err := g.lastLost(ctx, l.node)
	if err != nil {
		return err
	}
	if last.open && last.body.Run == l.run {
		g.group.stored(l)
		return nil
	}
	if !g.group.trying(time.Now(), l) {
		return nil
	}
	// The number of the alert before lets a run be lost twice within two minutes.
	id := fmt.Sprintf("node.lost.%s.%s.%d", l.node, l.run, last.sequence)
	err = g.publishShared(ctx, id, "node.lost", l.node, events.Lost{
		Node: l.node, Run: l.run, LastHeardMS: l.heard.UnixMilli(), Worker: l.worker, UntilMS: l.until.UnixMilli()})
	if err == nil {
		g.group.stored(l)
	}
	return err
}

// publishReturned publishes the end of the alert about a lost peer, unless another peer has done it.
func (g *Generator) publishReturned(ctx context.Context, l lostPeer) error {
	last, err := g.lastLost(ctx, l.node)
	if err == nil && last.open {
		err = g.publishShared(ctx, "over."+last.id, "node.recovered", l.node, events.Recovered{Node: l.node, Episode: events.EpisodeLost})
	}
	if err != nil {
		return err
	}
	g.group.ended(l)
	why := "it was heard again"
	if !l.returned {
		why = "what it reserved is over"
	}
	g.log.Info("a generator is no longer lost", "node", l.node, "reason", why)
	return nil
}

// publishShared publishes an event that every peer publishes with the same ID, so that the stream keeps one.
func (g *Generator) publishShared(ctx context.Context, id, kind, key string, body any) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	ack, err := g.cfg.JS.PublishMsg(ctx, newEventWithID(id, kind, key, g.cfg.Node, body))
	if err == nil && !ack.Duplicate && g.cfg.Observer != nil {
		g.cfg.Observer.EventPublished("leaf." + kind)
	}
	return err
}

// recallLost takes in the alerts in the stream that have not ended: all generators may have ended while a node was
// lost.
func (g *Generator) recallLost(ctx context.Context) error {
	var nodes []string // the one with the newest alert is the last
	err := audit.Read(ctx, g.cfg.JS, wire.LostSubject+">", jetstream.DeliverLastPerSubjectPolicy, func(msg jetstream.Msg, _ uint64) {
		nodes = append(nodes, msg.Subject()[len(wire.LostSubject):])
	})
	if err != nil {
		return err
	}
	for _, node := range nodes[max(0, len(nodes)-maxLost):] {
		a, err := g.lastLost(ctx, node)
		if err != nil {
			return err
		}
		if a.open {
			g.group.recall(lostPeer{node: node, run: a.body.Run, worker: a.body.Worker,
				heard: time.UnixMilli(a.body.LastHeardMS), until: time.UnixMilli(a.body.UntilMS)}, g.cfg.Node)
		}
	}
	return nil
}

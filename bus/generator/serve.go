package generator

import (
	"context"
	"errors"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/nats-io/nats.go"
)

// degradedStart is how long a NATS server may be behind the others of its cluster after a
// start without an alert, because it has to catch up first.
const degradedStart = 10 * time.Second

// alertNATS publishes an alert when NATSErr begins to report something, and the end of the
// episode when it reports nothing any more.
func (g *Generator) alertNATS(now time.Time) {
	err := g.cfg.NATSErr()
	switch {
	case err != nil && !g.reported.natsDegraded:
		if !g.reported.natsWasWell && now.Sub(g.made) < degradedStart {
			return
		}
		g.reported.natsDegraded = true
		g.log.Error("the embedded NATS server does not keep its part of the state", "error", err)
		g.publish(newEvent("nats.degraded", g.cfg.Node, g.cfg.Node, bus.NATSDegradedEvent{Node: g.cfg.Node, Cause: err.Error()}))
	case err == nil && g.reported.natsDegraded:
		g.reported.natsDegraded = false
		g.log.Info("the embedded NATS server keeps its part of the state again")
		g.publish(newEvent("nats.recovered", g.cfg.Node, g.cfg.Node, bus.RecoveredEvent{Node: g.cfg.Node, Episode: "degraded"}))
	}
	g.reported.natsWasWell = g.reported.natsWasWell || err == nil
}

// flushConn waits until the server has taken in what was sent.
func (g *Generator) flushConn() error { return g.cfg.Conn.FlushTimeout(flushWait) }

// attend keeps the generator in its place among the others until the context
// is done, or it cannot serve any more.
func (g *Generator) attend(ctx context.Context, r *run) error {
	beats := time.NewTicker(heartbeatEvery)
	defer beats.Stop()
	looks := time.NewTicker(asideEvery)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-r.refused:
			return err
		case err := <-g.membership.rival:
			return err
		case s := <-r.status:
			if err := g.connection(s); err != nil {
				return err
			}
		case <-beats.C:
			g.sendHeartbeat(false)
		case now := <-looks.C:
			g.logStore()
			g.alertNATS(now)
			if err := g.cfg.StoreErr(); errors.Is(err, allocator.ErrRefused) {
				return err
			}
			g.segments.stepAside(now)
			g.snowflakes.stepAside(now)
		case <-g.group.turned: // one that can serve may be leaving: do not wait for the next look
			g.segments.stepAside(time.Now())
			g.snowflakes.stepAside(time.Now())
		case <-g.group.news:
			g.sendHeartbeat(false)
		}
	}
}

// connection takes in what became of the connection to NATS. An error says that it
// is gone for good.
func (g *Generator) connection(s nats.Status) error {
	if s == nats.CLOSED {
		return errors.Join(errors.New("the connection to NATS is closed for good"), g.cfg.Conn.LastError())
	}
	g.sendHeartbeat(false)
	g.tasks.start(func() { g.readPeerMarks(g.life) })
	return nil
}

// logStore logs when refills begin to fail, and when none fails any more: events tell
// of each tag, and a log for people of the store.
func (g *Generator) logStore() {
	switch f := g.alloc.Failing(); {
	case f.Store != nil && !g.reported.storeFails:
		g.reported.storeFails = true
		g.log.Warn("refills fail: IDs come from memory alone", "error", f.Store, "tags", f.Tags)
	case f.Store == nil && g.reported.storeFails:
		g.reported.storeFails = false
		g.log.Info("refills succeed again")
	}
}

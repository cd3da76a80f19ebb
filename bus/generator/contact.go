package generator

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/events"
)

// learnPatience is how long the store may take when no request waits: it may have a million tags, and be far away.
const learnPatience = 30 * time.Second

// reconnects is the number of reconnects so far. nats.go counts a reconnect before a message can arrive on the new
// connection. Its channels and callbacks report the reconnect only later. It may wait for the connection's lock.
func (g *Generator) reconnects() uint64 { return g.cfg.Conn.Stats().Reconnects }

// lookAtConnection notes a reconnect.
func (g *Generator) lookAtConnection() { g.group.away.reconnected(at(time.Now()), g.reconnects()) }

// forceReconnect makes nats.go connect again, to another server of its list if there is one. It does not wait for that,
// nor for the connection's lock, which nats.go holds while it dials, and while a write to the server hangs.
func (g *Generator) forceReconnect() {
	g.tasks.start(func() {
		if err := g.cfg.Conn.ForceReconnect(); err != nil {
			g.log.Debug("a reconnect failed", "error", err)
		}
	})
}

// hears reports whether the connection delivers what other generators send. A connection that
// hangs counts as connected for minutes, and delivers nothing.
func (g *Generator) hears() bool {
	_, ok := g.group.away.steadySince(time.Now())
	return ok && g.cfg.Conn.IsConnected()
}

// heardFor is for how long this generator has heard all that the others send.
func (g *Generator) heardFor(now time.Time) time.Duration {
	g.lookAtConnection()
	if since, ok := g.group.away.steadySince(now); ok {
		return now.Sub(since)
	}
	return 0
}

// watchAway looks whether this generator is away, and learns what happened meanwhile. It waits for nothing.
func (g *Generator) watchAway(ctx context.Context, connected <-chan nats.Status) {
	a := g.group.away
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	was, round, parted := stateHere, 0, false
	begin := func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }
	learning, cancel := begin() // ends with a round
	defer func() { cancel() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
			a.tick(at(time.Now()))
		case <-connected:
			g.tasks.start(g.lookAtConnection)
		case <-a.work:
		}
		// A link between NATS servers may be cut. The own heartbeats go on, and changes may be missed.
		if silent := g.group.allSilent(time.Now()); silent != parted {
			if parted = silent; parted {
				a.relearn(theRecords)
			}
		}
		do := a.next(at(time.Now()))
		if do.state != was && do.state == stateAway {
			g.log.Warn("this generator stood still or was cut off from NATS", "for", do.lasted.Round(time.Millisecond))
		}
		if do.state != was {
			was = do.state
			signal(g.changed) // a heartbeat; and the services are opened again
		}
		if do.reconnect && g.cfg.Conn.Opts.InProcessServer == nil { // else there is no other server
			g.tasks.start(func() {
				if g.cfg.Conn.IsConnected() {
					g.log.Warn("reconnecting, because the generator's own heartbeats do not come back", "url", g.cfg.Conn.ConnectedUrlRedacted())
					g.forceReconnect()
				}
			})
		}
		if do.round != round {
			cancel()
			round = do.round
			learning, cancel = begin()
		}
		for what, f := range []func(context.Context) error{theRecords: g.learnRecords, theWorker: g.verifyWorker} {
			if do.learn[what] {
				within := learning
				g.tasks.start(func() {
					ctx, done := context.WithTimeout(within, do.patience)
					defer done()
					a.learned(at(time.Now()), do.round, what, f(ctx))
				})
			}
		}
		g.alertStale(do)
	}
}

// alertStale publishes that requests go on although the records are not known, and the end of it.
func (g *Generator) alertStale(do decision) {
	switch {
	case do.stale:
		if do.why == nil {
			do.why = errCutOff
		}
		g.log.Warn("this generator was cut off, and the store does not say which max_id operators have set since: "+
			"it may hand out IDs below", "error", do.why)
		g.publishEvent("node.stale", g.cfg.Node, events.Stale{Node: g.cfg.Node, Error: do.why.Error()})
	case do.recovered:
		g.log.Info("this generator knows again which max_id operators have set")
		g.publishEvent("node.recovered", g.cfg.Node, events.Recovered{Node: g.cfg.Node, Episode: "stale"})
	}
}

// learnRecords brings all records up to date, and so drops the IDs in memory below the max_id that operators have set.
// The heartbeat that ended the absence announced this generator, so changes have waited for it since.
func (g *Generator) learnRecords(ctx context.Context) error {
	if !g.phase.opened.Load() { // nothing is in memory
		return nil
	}
	return g.cfg.Records.Sync(ctx)
}

// verifyWorker checks the worker's record.
func (g *Generator) verifyWorker(ctx context.Context) error {
	if g.noWorker() == nil {
		g.flakes.Verify(ctx)
	}
	return ctx.Err()
}

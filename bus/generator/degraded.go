package generator

import (
	"time"

	"github.com/leafbus/leafbus/bus"
)

// degradedStart is how long a NATS server may be behind the others of its cluster after a
// start without an alert, because it has to catch up first.
const degradedStart = 10 * time.Second

// tellNATS publishes an alert when NATSErr begins to report something, and the end of the
// episode when it reports nothing any more.
func (g *Generator) tellNATS(now time.Time) {
	err := g.cfg.NATSErr()
	switch {
	case err != nil && !g.degraded:
		if !g.natsWasWell && now.Sub(g.made) < degradedStart {
			return
		}
		g.degraded = true
		g.log.Error("the embedded NATS server does not keep its part of the state", "error", err)
		g.publish(newEvent("nats.degraded", g.cfg.Node, g.cfg.Node, bus.NATSDegradedEvent{Node: g.cfg.Node, Cause: err.Error()}))
	case err == nil && g.degraded:
		g.degraded = false
		g.log.Info("the embedded NATS server keeps its part of the state again")
		g.publish(newEvent("nats.recovered", g.cfg.Node, g.cfg.Node, bus.RecoveredEvent{Node: g.cfg.Node, Episode: "degraded"}))
	}
	g.natsWasWell = g.natsWasWell || err == nil
}

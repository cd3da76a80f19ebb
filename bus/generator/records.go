package generator

import (
	"cmp"
	"time"

	"github.com/leafbus/leafbus/bus/events"
)

// recordsPatience is how long the records may be unavailable before that raises an alert.
const recordsPatience = time.Second

// storeErr says why the tags' store is unavailable; nil: as far as is known, it is available.
func (g *Generator) storeErr() error {
	if g.cfg.Numbers != nil {
		if err := g.cfg.Numbers.Err(); err != nil {
			return err
		}
	}
	if !g.phase.opened.Load() {
		return nil // what is missing is said by the preparation
	}
	return g.cfg.Records.Err()
}

// leads reports whether this generator compares the database with the records: the one with the lowest run does, of
// those for which the last comparison was a success.
func (g *Generator) leads() bool {
	own := g.membership.installation()
	return !g.group.anyPeer(time.Now(), time.Time{}, func(b heartbeat) bool {
		return b.Polls && b.ID < g.group.self && b.Installation == own
	})
}

// alertRecords publishes an alert when the records have been lost, unfit or not to be written for recordsPatience, and
// its end.
func (g *Generator) alertRecords(now time.Time) {
	if !g.phase.opened.Load() {
		return
	}
	r, err := &g.reported, cmp.Or(g.cfg.Records.Err(), g.cfg.Unwritable())
	switch {
	case err == nil && r.recordsAway:
		g.log.Info("the records of the tags are available again")
		g.publishEvent("records.recovered", g.cfg.Node, events.Recovered{Node: g.cfg.Node, Episode: "unavailable"})
		fallthrough
	case err == nil:
		r.recordsAway, r.recordsSince = false, time.Time{}
	case r.recordsSince.IsZero():
		r.recordsSince = now
	case !r.recordsAway && now.Sub(r.recordsSince) >= recordsPatience:
		r.recordsAway = true
		g.log.Error("the records of the tags are lost or cannot be written: IDs come from memory alone", "error", err)
		g.publishEvent("records.unavailable", g.cfg.Node,
			events.RecordsUnavailable{Node: g.cfg.Node, Error: err.Error(), SinceMS: r.recordsSince.UnixMilli()})
	}
}

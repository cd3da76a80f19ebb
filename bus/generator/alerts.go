package generator

import (
	"cmp"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/events"
)

const (
	// degradedStart is how long NATS may catch up with its cluster after a start before that raises an alert.
	degradedStart = 10 * time.Second
	// recordsPatience is how long the records may be unavailable before that raises an alert.
	recordsPatience = time.Second
)

// alerts says in the log and by events when NATS or the store is not well, and when it is again. The loop of Run owns
// it, so it has no lock.
type alerts struct {
	cfg     *Config
	alloc   *allocator.Allocator
	opened  func() bool               // the store is
	crowded func(now time.Time) error // why too many generators use one NATS server
	publish func(*nats.Msg)

	refillsFail time.Time // when the log last said so; zero: they do not
	nats        episode   // of NATSErr, or of all generators at one server
	natsWasWell bool      // once since the start; until then it has degradedStart to catch up with its cluster
	records     episode
}

// episode is a time in which something is wrong. The zero value is between two.
type episode struct {
	since    time.Time // zero: nothing is wrong
	reported bool
}

// look reports whether an episode must be reported, because something has been wrong for as long as patience, and
// whether one that was reported ends.
func (e *episode) look(now time.Time, wrong bool, patience time.Duration) (begins, ends bool) {
	if !wrong {
		ends, *e = e.reported, episode{}
		return false, ends
	}
	if e.since.IsZero() {
		e.since = now
	}
	begins = !e.reported && now.Sub(e.since) >= patience
	e.reported = e.reported || begins
	return begins, false
}

func (a *alerts) look(now time.Time) {
	a.lookRefills(now)
	a.lookNATS(now)
	if a.opened() {
		a.lookRecords(now)
	}
}

// lookRefills logs once a minute that refills fail, and when none fails any more. Events report
// each tag; the log reports the store.
func (a *alerts) lookRefills(now time.Time) {
	switch f := a.alloc.Failing(); {
	case f.Store != nil && now.Sub(a.refillsFail) > repeatLog:
		a.refillsFail = now
		a.cfg.Log.Warn("refills fail: only IDs in memory are handed out", "error", f.Store, "tags", f.Tags)
	case f.Store == nil && !a.refillsFail.IsZero():
		a.refillsFail = time.Time{}
		a.cfg.Log.Info("refills succeed again")
	}
}

// lookNATS publishes an alert when NATSErr begins to report an error, or when all generators use one server, and the
// end of the alert when neither holds any more.
func (a *alerts) lookNATS(now time.Time) {
	err, patience := cmp.Or(a.cfg.NATSErr(), a.crowded(now)), time.Duration(0)
	if !a.natsWasWell {
		patience = degradedStart
	}
	a.natsWasWell = a.natsWasWell || err == nil
	node := a.cfg.Node
	switch begins, ends := a.nats.look(now, err != nil, patience); {
	case begins:
		a.cfg.Log.Error("NATS is degraded", "error", err)
		a.publish(newEvent("nats.degraded", node, node, events.NATSDegraded{Node: node, Cause: err.Error()}))
	case ends:
		a.cfg.Log.Info("NATS is degraded no more")
		a.publish(newEvent("nats.recovered", node, node, events.Recovered{Node: node, Episode: "degraded"}))
	}
}

// lookRecords publishes an alert when the records have been lost, unfit or not to be written for recordsPatience, and
// its end.
func (a *alerts) lookRecords(now time.Time) {
	err, node := cmp.Or(a.cfg.Records.Err(), a.cfg.Unwritable()), a.cfg.Node
	switch begins, ends := a.records.look(now, err != nil, recordsPatience); {
	case begins:
		a.cfg.Log.Error("the records of the tags are lost or cannot be written: IDs come from memory alone",
			"error", err)
		a.publish(newEvent("records.unavailable", node, node,
			events.RecordsUnavailable{Node: node, Error: err.Error(), SinceMS: a.records.since.UnixMilli()}))
	case ends:
		a.cfg.Log.Info("the records of the tags are available again")
		a.publish(newEvent("records.recovered", node, node, events.Recovered{Node: node, Episode: "unavailable"}))
	}
}

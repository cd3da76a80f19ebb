package allocator

import "sync/atomic"

// alarms sends alerts and their ends, and knows which tags fail. The lock of a buffer guards what it keeps there.
type alarms struct {
	notify        func(Event)
	refilled      atomic.Int64 // how many refills succeeded
	unknownAlerts atomic.Int64 // tags that were never loaded and raised an alert
	troubles      troubles
}

// episodes are those of a tag that end with a refill.
var episodes = [...]string{refillFailed: "refill_failed", starved: "starved", regressed: "regressed"}

const (
	refillFailed = iota
	starved
	regressed
)

// alerts are the episodes that are not over.
type alerts [len(episodes)]bool

// recoveredLocked ends the episodes of a store that fails. Call it after a refill, when the
// tag leaves memory, and when the store answers, though not with a range to serve.
func (a *alarms) recoveredLocked(b *buffer) {
	for episode, name := range episodes {
		if b.alerts[episode] {
			a.notify(Recovered{b.tag, name})
		}
	}
	b.alerts, b.failure = alerts{}, nil
	if b.unknownAlert {
		b.unknownAlert = false
		a.unknownAlerts.Add(-1)
	}
	a.recountLocked(b)
}

// regressedLocked reports that the store went backwards, once until the next refill succeeds, and each
// range that may come twice. A buffer that is gone reports nothing: no refill would end the alert.
func (a *alarms) regressedLocked(b *buffer, e Regressed) {
	if !b.gone && (!b.alerts[regressed] || e.Action == Dropped) {
		b.alerts[regressed] = true
		a.notify(e)
	}
}

// heldTwiceLocked reports a range of this generator of which another one has claimed a part.
func (a *alarms) heldTwiceLocked(b *buffer, own, other Range) {
	a.regressedLocked(b, Regressed{Tag: b.tag, Got: other.First, Seen: own.Last + 1, Action: Dropped,
		InDoubt: Range{First: max(own.First, other.First), Last: min(own.Last, other.Last)}})
}

// mayAlertLocked reports whether b may raise an alert; see maxUnknownAlerts. One that is gone may not,
// because nothing would end the alert.
func (a *alarms) mayAlertLocked(b *buffer) bool {
	if b.gone {
		return false
	}
	if b.stepper.base > 0 || b.unknownAlert {
		return true
	}
	if a.unknownAlerts.Add(1) > maxUnknownAlerts {
		a.unknownAlerts.Add(-1)
		return false
	}
	b.unknownAlert = true
	return true
}

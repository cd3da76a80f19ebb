package allocator

// alarms sends alerts and their ends, and knows which tags fail. The lock of a buffer guards what it keeps there.
type alarms struct {
	notify   func(Event)
	index    *Index
	troubles troubles
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

// mayAlertLocked reports whether b may raise an alert. A name of which nothing is known may not: callers can ask for any
// name while the store is away, and would hide the alerts that count. One that is gone may not, because nothing would
// end the alert.
func (a *alarms) mayAlertLocked(b *buffer) bool {
	return !b.gone && (b.stepper.base > 0 || a.index.End(b.tag) > 0)
}

package gateway

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// maxAlerts is how many alerts are remembered, of which those that last matter.
const maxAlerts = 10_000

// skewed is the alert of a start that was refused, too: it tells of a generator that
// does not run, and which somebody wants to run.
const skewed = "leaf.clock.skewed"

// alerts are the latest alert of each episode, by generator: one that starts or stops
// ends those of what it had in its memory. They are not safe for concurrent use.
type alerts struct {
	of    map[string]map[episode]*notice
	count int
}

// episode is what an alert of a generator is about.
type episode struct{ what, key string }

// notice is an alert, and what the dashboard shows of its end.
type notice struct {
	event
	Over time.Time `json:"over,omitzero"`  // since when; zero: it lasts
	Gone bool      `json:"gone,omitempty"` // it lasts, but its generator does not answer

	begun, ended told
}

// told is when a generator told an event: by its clock, which may be set back between
// two events, and where the event is in the stream, 0 until it was read there.
type told struct {
	at    time.Time
	place int
}

// compare goes by the clock only where the stream does not say which of two events
// of a generator was first.
func (t told) compare(other told) int {
	if t.place > 0 && other.place > 0 {
		return cmp.Compare(t.place, other.place)
	}
	return t.at.Compare(other.at)
}

// note takes in an event that may begin or end alerts. It may come twice, and late.
func (a *alerts) note(e bus.Event, place int) {
	when := told{e.Time, place}
	switch body := e.Body.(type) {
	case bus.RecoveredEvent:
		kind, _ := strings.CutSuffix(e.Type, "recovered")
		if n := a.of[nodeOf(e)][episode{kind + body.Episode, e.Key}]; n != nil {
			n.end(when)
		}
	case bus.NodeEvent, bus.WorkerEvent:
		if node, ok := body.(bus.NodeEvent); ok && e.Type == "leaf.node.started" && !node.Started.IsZero() {
			when = told{at: node.Started} // the process may have told alerts before this, while its store was away
		}
		for about, n := range a.of[nodeOf(e)] {
			if ends(e.Type, about.what) {
				n.end(when)
			}
		}
	}
	if e.Severity == "alert" {
		a.begin(e, when)
	}
}

// ends reports whether an event ends the alerts of a type that its generator told before:
// they were of what a process had in its memory, which that of the next one does not know.
// A process may have a worker before it tells that it has started, and tell of its
// clock then.
func ends(event, alert string) bool {
	switch event {
	case "leaf.node.started":
		return strings.HasPrefix(alert, "leaf.segment.") || alert == "leaf.nats.degraded" || alert == "leaf.node.stale"
	case "leaf.worker.acquired":
		return alert == skewed || alert == "leaf.clock.backwards" || alert == "leaf.worker.lost" || alert == "leaf.worker.expiring"
	case "leaf.node.stopped":
		return alert != skewed
	}
	return false
}

func (a *alerts) begin(e bus.Event, when told) {
	node, about := nodeOf(e), episode{e.Type, e.Key}
	n := a.of[node][about]
	switch {
	case n == nil:
		if a.count >= maxAlerts {
			a.forget()
		}
		if a.of[node] == nil {
			a.of[node] = make(map[episode]*notice)
		}
		a.of[node][about] = &notice{event: show(e), begun: when}
		a.count++
	case n.ID == e.ID:
		n.begun.place = max(n.begun.place, when.place)
	case when.compare(n.begun) > 0:
		n.event, n.begun = show(e), when
	}
}

func (n *notice) end(when told) {
	// What is heard again says less than what was read.
	if c := when.compare(n.ended); c > 0 || c == 0 && when.place > 0 {
		n.ended = when
	}
}

// forget forgets a tenth of the alerts, so that it is not needed with each: those that
// are over first, and of them, and of the others, the oldest.
func (a *alerts) forget() {
	all := a.all(nil)
	slices.SortFunc(all, notice.compare)
	for _, n := range all[:maxAlerts/10] {
		delete(a.of[n.Node], episode{n.Type, n.Key})
		if len(a.of[n.Node]) == 0 {
			delete(a.of, n.Node)
		}
		a.count--
	}
}

// all are the alerts as they are now. running reports whether a generator is
// there; nil: that is not known.
func (a *alerts) all(running func(node string) bool) []notice {
	all := make([]notice, 0, a.count)
	for node, about := range a.of {
		here := running == nil || running(node)
		for _, kept := range about {
			n := *kept
			if n.ended.compare(n.begun) >= 0 {
				n.Over = n.ended.at
			} else {
				n.Gone = !here && n.Type != skewed
			}
			all = append(all, n)
		}
	}
	return all
}

// compare is for a list in which those come last that want an operator most: those
// that last, of generators that are there, and of all kinds the newest.
func (n notice) compare(other notice) int {
	return cmp.Or(cmp.Compare(n.weight(), other.weight()), n.Time.Compare(other.Time), cmp.Compare(other.ID, n.ID))
}

func (n notice) weight() int {
	switch {
	case !n.Over.IsZero():
		return 0
	case n.Gone:
		return 1
	}
	return 2
}

package gateway

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus/events"
)

// maxAlerts is how many alerts are remembered. It bounds the lasting ones; see forget.
const maxAlerts = 10_000

// lost is the alert about a generator that its peers do not hear. They publish it, so it lasts while the generator
// does not run, until its UntilMS. Its end is missing if all of them restarted meanwhile.
const lost = "leaf.node.lost"

// alerts are the latest alert of each episode, by generator. A start or a stop of a
// generator ends the alerts about its memory. They are not safe for concurrent use.
type alerts struct {
	of    map[string]map[episode]*notice
	count int
}

// episode is what an alert of a generator is about.
type episode struct{ what, key string }

// notice is an alert, and what the dashboard shows of its end.
type notice struct {
	event
	Over time.Time `json:"over,omitzero"`  // when it ended; zero: it lasts
	Gone bool      `json:"gone,omitempty"` // it lasts, but its generator does not answer

	begun, ended moment
}

// moment is when a generator published an event: by its clock, which may be set back
// between two events, and the event's position in the stream, 0 until it was read there.
type moment struct {
	at       time.Time
	position int
}

// compare uses the clock only if the stream does not say which of two events of a
// generator was first.
func (m moment) compare(other moment) int {
	if m.position > 0 && other.position > 0 {
		return cmp.Compare(m.position, other.position)
	}
	return m.at.Compare(other.at)
}

// add takes in an event that may begin or end alerts. The event may come twice, and late.
func (a *alerts) add(e events.Event, position int) {
	when := moment{e.Time, position}
	switch body := e.Body.(type) {
	case events.Recovered:
		kind, _ := strings.CutSuffix(e.Type, "recovered")
		if n := a.of[nodeOf(e)][episode{kind + body.Episode, e.Key}]; n != nil {
			n.end(when)
		}
	case events.Node, events.Worker:
		if node, ok := body.(events.Node); ok && e.Type == "leaf.node.started" && !node.Started.IsZero() {
			// the process may have raised alerts before this event, while its store was unavailable
			when = moment{at: node.Started}
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

// ends reports whether an event ends its generator's earlier alerts of a type. These
// are about the memory of a process, so the next process does not know them and cannot end
// them. A process may have a worker, and report its clock, before it publishes its start.
func ends(event, alert string) bool {
	switch event {
	case "leaf.node.started":
		return strings.HasPrefix(alert, "leaf.segment.") || strings.HasPrefix(alert, "leaf.records.") ||
			strings.HasPrefix(alert, "leaf.tag.") || alert == "leaf.nats.degraded" || alert == "leaf.node.stale" || alert == lost
	case "leaf.worker.acquired":
		return strings.HasPrefix(alert, "leaf.clock.") || alert == "leaf.worker.lost" || alert == "leaf.worker.expiring"
	case "leaf.node.stopped":
		return true
	}
	return false
}

func (a *alerts) begin(e events.Event, when moment) {
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
		n.begun.position = max(n.begun.position, when.position)
	case when.compare(n.begun) > 0:
		n.event, n.begun = show(e), when
	}
}

func (n *notice) end(when moment) {
	// An event from the stream has a position; the same one heard live has none.
	if c := when.compare(n.ended); c > 0 || c == 0 && when.position > 0 {
		n.ended = when
	}
}

// forget removes a tenth of the alerts, so that it is not needed for each new one: first
// those that ended, the oldest first.
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

// all returns the alerts as they are now. running reports whether a generator runs; nil:
// that is not known.
func (a *alerts) all(running func(node string) bool) []notice {
	all, now := make([]notice, 0, a.count), time.Now()
	for node, about := range a.of {
		runs := running == nil || running(node)
		for _, kept := range about {
			n := *kept
			if n.ended.compare(n.begun) >= 0 {
				n.Over = n.ended.at
			} else if body, ok := n.body.(events.Lost); ok && (body.UntilMS > 0 && body.UntilMS <= now.UnixMilli() ||
				running != nil && runs && now.Sub(n.Time) > patience) { // it answered since
				n.Over = now
			} else {
				n.Gone = !runs && n.Type != lost
			}
			all = append(all, n)
		}
	}
	return all
}

// compare orders alerts by urgency, the most urgent last: ended ones, lasting ones of
// generators that are gone, lasting ones; each kind by time.
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

package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// mostTenures is how many tenures of one worker are remembered, the latest ones.
	mostTenures = 1000
	// earlier is how far before the moment of its making, in ms, the time of an ID may be: a unit
	// of time has up to 1 s, and a generator under full load issues a little behind its clock.
	earlier = 1050
)

// workerTrail is what the events say of a worker.
type workerTrail struct {
	number  int64
	events  int64
	since   time.Time // of the first event
	tenures []tenure
}

// event adds an event of the worker. The events of one generator come in their order. Those of
// several may not, and any may be missing.
func (w *workerTrail) event(event events.Event, e events.Worker) {
	if w.events++; w.events == 1 {
		w.since = event.Time
	}
	h := w.latest(cmp.Or(e.Holder, e.Node))
	if event.Type == "leaf.worker.acquired" {
		if h != nil && !h.over && h == &w.tenures[len(w.tenures)-1] { // it was started again
			h.last, h.until = event.Time, e.ReservedUntilMS
			return
		}
		if len(w.tenures) == mostTenures {
			w.tenures = slices.Delete(w.tenures, 0, 1)
		}
		w.tenures = append(w.tenures, tenure{
			node: e.Node, source: "its event is of " + event.Time.Format(time.RFC3339Nano), at: event.Time, last: event.Time,
			from: cmp.Or(e.FromMS, event.Time.UnixMilli()-earlier), until: e.ReservedUntilMS, after: e.AfterMS,
		})
		return
	}
	switch {
	case h == nil: // the event of when it took the worker is missing
	case event.Type == "leaf.worker.lost":
		if !h.exact {
			h.until, h.over, h.exact = e.UntilMS, true, true
		}
	case h.over || w.replaced(h, e.ReservedUntilMS):
	case event.Type == "leaf.worker.released":
		h.until, h.over, h.exact = e.ReservedUntilMS, true, e.Holder == ""
	default:
		h.until = max(h.until, e.ReservedUntilMS)
	}
}

// latest returns the latest tenure of a generator; nil: it has none.
func (w *workerTrail) latest(node string) *tenure {
	for i := len(w.tenures) - 1; i >= 0; i-- {
		if w.tenures[i].node == node {
			return &w.tenures[i]
		}
	}
	return nil
}

// replaced reports whether another generator held the worker between h and until. Then what is said
// of the holder of h is about a later tenure.
func (w *workerTrail) replaced(h *tenure, until int64) bool {
	return slices.ContainsFunc(w.tenures, func(o tenure) bool {
		return o.node != h.node && o.start() >= h.start() && o.start() < until
	})
}

// recorded returns the tenure in the registry's record. It is not ok if there is no record.
func (w *workerTrail) recorded(record admin.Worker) (t tenure, ok bool) {
	t = tenure{node: record.Node, source: "by the registry", at: record.Acquired, last: record.Acquired,
		from: record.Acquired.UnixMilli() - earlier, until: record.ReservedUntil.UnixMilli(), exact: true}
	if h := w.latest(record.Node); h != nil && !h.last.Before(record.Acquired) {
		t.after = h.after
	}
	return t, record.Node != ""
}

// holder returns who held the worker at a time, in Unix ms; nil: that is not recorded. A holder
// moves its end ahead without an event, until the next one begins.
func (w *workerTrail) holder(record admin.Worker, ms int64) (h *tenure) {
	all := slices.Clone(w.tenures)
	r, ok := w.recorded(record)
	if own := w.latest(r.node); ok && (own == nil || own.last.Before(r.at)) { // its event is missing
		r.source, r.over = "", true
		all = append(all, r)
	}
	for i, t := range all {
		if t.from <= ms && (h == nil || t.from >= h.from) {
			h = &all[i]
		}
	}
	if h != nil && h.over && ms >= h.until {
		return nil
	}
	return h
}

// audit compares the events with the registry's record and with the generators that say that they
// hold the worker. Without a record its Node is empty.
func (w *workerTrail) audit(record admin.Worker, running []admin.State) (found []Contradiction) {
	found = []Contradiction{}
	two := func(format string, args ...any) {
		if len(found) < mostContradictions {
			message := fmt.Sprintf("worker %d: ", w.number) + fmt.Sprintf(format, args...)
			found = append(found, Contradiction{Kind: TwoHolders, Worker: &w.number, Message: message})
		}
	}
	all := slices.Clone(w.tenures)
	if t, ok := w.recorded(record); ok {
		all = append(all, t)
	}
	for i, s := range running {
		if slices.ContainsFunc(running[:i], func(o admin.State) bool { return o.Node == s.Node }) {
			two("two generators with the name %s say that they hold it", s.Node)
		}
		now := time.UnixMilli(s.Clock.UnixMS).UTC()
		t := tenure{node: s.Node, source: "it runs and says so", at: now, last: now,
			from: s.Clock.UnixMS, until: s.ReservedUntil, exact: true}
		if h := w.latest(s.Node); h != nil && !h.over {
			t.after = h.after
		}
		all = append(all, t)
	}
	named := make(map[[2]string]bool) // once for each two generators
	for i, t := range all {
		for _, o := range all[:i] {
			pair := [2]string{min(t.node, o.node), max(t.node, o.node)}
			if t.node != o.node && t.contradicts(o) && !named[pair] {
				named[pair] = true
				two("%v, and %v", o, t)
			}
		}
	}
	return found
}

// tenure is a stretch of time for which one generator holds a worker: it may issue IDs with times
// from the field from on, and before until. Times are Unix ms.
type tenure struct {
	node        string
	source      string    // where this is written, for people; empty: only in the registry
	at, last    time.Time // when the generator took the worker, and when it was last started with it
	from, until int64
	after       int64 // the last report in the record that the generator replaced; 0: not known, or there was no record
	over        bool  // the generator does not move until ahead any more
	exact       bool  // until is certain. Otherwise it was reserved once, and the event that lowered it may be missing
}

// start is when the generator can have begun to issue, unless its clock was set back since it took
// the worker.
func (t tenure) start() int64 { return max(t.from, t.at.UnixMilli()) }

func (t tenure) String() string {
	return fmt.Sprintf("%s may issue from %s until %s (%s)", t.node, moment(t.start()), moment(t.until), t.source)
}

// contradicts reports whether both generators may issue the same time. A generator that replaced
// the record of the other one, or a later record, took the worker where that one ended.
func (t tenure) contradicts(o tenure) bool {
	replaced := func(x, y tenure) bool { return !x.exact && y.after >= x.last.UnixMilli() }
	return max(t.start(), o.start()) < min(t.until, o.until) && !replaced(t, o) && !replaced(o, t)
}

// moment is a Unix time in ms, for people.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format(snowflake.TimeFormat) }

package audit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// mostTenures is how many tenures of one worker are remembered, the latest ones.
	mostTenures = 1000
	// issueLag is how far behind its clock, in ms, a generator under full load may issue.
	issueLag = 50
)

// tenure is a stretch of time for which one generator holds a worker: it may issue IDs with times from the field from
// on, and before until. Times are Unix ms.
type tenure struct {
	node        string
	source      string    // where this is written, for people
	at, last    time.Time // when the generator took the worker, and when it was last started with it
	from, until int64
	// after is the last report in the record that the generator replaced. 0: not known, or there was no record.
	after   int64
	guessed bool // the event does not say from, which is its own time less issueLag
	over    bool // the generator does not move until ahead any more
	exact   bool // until is certain. Otherwise it was reserved once, and the event that lowered it may be missing
}

// start is when the generator can have begun to issue, unless its clock was set back since it took the worker.
func (t tenure) start() int64 { return max(t.from, t.at.UnixMilli()) }

func (t tenure) String() string {
	return fmt.Sprintf("%s may issue from %s until %s (%s)", t.node, moment(t.start()), moment(t.until), t.source)
}

// contradicts reports whether both generators may issue the same time. A generator that replaced the record
// of the other one, or a later record, took the worker where that one ended.
func (t tenure) contradicts(o tenure) bool {
	replaced := func(x, y tenure) bool { return !x.exact && y.after >= x.last.UnixMilli() }
	return max(t.start(), o.start()) < min(t.until, o.until) && !replaced(t, o) && !replaced(o, t)
}

// moment is a Unix time in ms, for people.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format(snowflake.TimeFormat) }

// workerTrail is what the events say of a worker.
type workerTrail struct {
	number  int64
	tenures []tenure
	// within is how far, in ms, the time of an ID may be before the moment of its making for that reason alone that it is
	// the beginning of a unit of time: see inUnits.
	within int64
}

// inUnits says in which units the layout counts the time. Call it after all events.
func (w *workerTrail) inUnits(l snowflake.Layout) {
	w.within = l.Unit() - 1
	for i := range w.tenures {
		if t := &w.tenures[i]; t.guessed {
			t.from -= w.within
		}
	}
}

// event adds an event of the worker. The events of one generator come in their order. Those of several may not, and any
// may be missing.
func (w *workerTrail) event(event events.Event, e events.Worker) {
	h := w.latest(cmp.Or(e.Holder, e.Node))
	switch event.Type {
	case "leaf.worker.acquired":
		if h != nil && !h.over && h == &w.tenures[len(w.tenures)-1] { // it was started again
			h.last, h.until = event.Time, e.ReservedUntilMS
			return
		}
		if len(w.tenures) == mostTenures {
			w.tenures = slices.Delete(w.tenures, 0, 1)
		}
		w.tenures = append(w.tenures, tenure{
			node: e.Node, source: "its event is of " + event.Time.Format(time.RFC3339Nano), at: event.Time, last: event.Time,
			from: cmp.Or(e.FromMS, event.Time.UnixMilli()-issueLag), until: e.ReservedUntilMS, after: e.AfterMS, guessed: e.FromMS == 0,
		})
	case "leaf.worker.released":
		switch {
		case h != nil && !h.over && !w.replaced(h, e.ReservedUntilMS):
			h.until, h.over, h.exact = e.ReservedUntilMS, true, e.Holder == ""
		case e.Holder == "": // an older version does not name the former holder
			for i := range w.tenures {
				if t := &w.tenures[i]; !t.over && t.start() < e.ReservedUntilMS && !w.replaced(t, e.ReservedUntilMS) {
					t.until, t.over = min(t.until, e.ReservedUntilMS), true
				}
			}
		}
	case "leaf.worker.lost":
		switch {
		case h == nil || h.exact: // the event of when it took the worker is missing
		case e.UntilMS == 0: // an older version does not say what it issued
			h.until, h.over = min(h.until, event.Time.UnixMilli()), true
		default:
			h.until, h.over, h.exact = e.UntilMS, true, true
		}
	default:
		if h != nil && !h.over && !w.replaced(h, e.ReservedUntilMS) {
			h.until = max(h.until, e.ReservedUntilMS)
		}
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

// replaced reports whether another generator held the worker between h and until. Then what is said of the holder of h
// is about a later tenure.
func (w *workerTrail) replaced(h *tenure, until int64) bool {
	return slices.ContainsFunc(w.tenures, func(o tenure) bool {
		return o.node != h.node && o.start() >= h.start() && o.start() < until
	})
}

// recorded returns the tenure in the registry's record. It is not ok if there is no record.
func (w *workerTrail) recorded(record admin.Worker) (t tenure, ok bool) {
	t = tenure{node: record.Node, source: "by the registry", at: record.Acquired, last: record.Acquired,
		from: record.Acquired.UnixMilli() - w.within, until: record.ReservedUntil.UnixMilli(), exact: true}
	if h := w.latest(record.Node); h != nil && !h.last.Before(record.Acquired) {
		t.after = h.after
	}
	return t, record.Node != ""
}

// audit compares the events with the registry's record and with the generators that say that they hold the worker.
// Without a record its Node is empty.
func (w *workerTrail) audit(record admin.Worker, running []admin.State) (found []Contradiction) {
	found = []Contradiction{}
	two := func(format string, args ...any) {
		if len(found) < mostContradictions {
			found = append(found, Contradiction{Kind: TwoHolders, Worker: &w.number, Message: fmt.Sprintf("worker %d: ", w.number) + fmt.Sprintf(format, args...)})
		}
	}
	all := slices.Clone(w.tenures)
	if t, ok := w.recorded(record); ok {
		all = append(all, t)
	}
	if record.Rival != "" {
		two("the registry has two records of it, of %s and of %s", record.Node, record.Rival)
	}
	for i, s := range running {
		if slices.ContainsFunc(running[:i], func(o admin.State) bool { return o.Node == s.Node }) {
			two("two generators with the name %s say that they hold it", s.Node)
		}
		now := time.UnixMilli(s.Clock.UnixMS).UTC()
		t := tenure{node: s.Node, source: "it runs and says so", at: now, last: now, from: s.Clock.UnixMS, until: s.ReservedUntil, exact: true}
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

// holders returns the tenures with the ends that events and record show together: a holder moves its end ahead without
// an event.
func (w *workerTrail) holders(record admin.Worker) []tenure {
	all := slices.Clone(w.tenures)
	r, ok := w.recorded(record)
	for i := range all {
		h := &all[i]
		if h.over {
			continue
		}
		if ok && r.node == h.node && !h.last.Before(r.at) { // the tenure of the record, also if an event names a later holder
			h.until, h.over = r.until, true
			continue
		}
		next := tenure{from: math.MaxInt64}
		for _, o := range w.tenures {
			if o.node != h.node && o.start() >= h.start() && o.from < next.from {
				next = o
			}
		}
		if ok && next.from == math.MaxInt64 {
			next = r
		}
		if next.from > h.until || next.after >= h.last.UnixMilli() {
			h.until = next.from
		}
	}
	if h := w.latest(r.node); ok && (h == nil || h.last.Before(r.at)) { // its event is missing
		r.source = ""
		all = append(all, r)
	}
	return all
}

// gaps returns the times, in Unix ms, at which certainly no generator held the worker, by events and record. Times that
// are neither in a gap nor in a tenure are not known: events may be missing. everywhere: the registry has the records
// of all workers.
func (w *workerTrail) gaps(record admin.Worker, everywhere bool) (gaps []bus.Range) {
	for _, t := range w.tenures {
		before := int64(0) // the latest end of those who held it before t
		for _, o := range w.tenures {
			if o.over && o.start() < t.start() {
				before = max(before, o.until)
			}
		}
		// The record that t replaced is from before that end. So nobody else held the worker meanwhile.
		if before > 0 && before < t.from && t.after > 0 && t.after < before {
			gaps = append(gaps, bus.Range{First: before, Last: t.from - 1})
		}
	}
	switch {
	case record.Node != "":
		gaps = append(gaps, bus.Range{First: record.ReservedUntil.UnixMilli(), Last: math.MaxInt64})
	case everywhere && len(w.tenures) == 0:
		gaps = append(gaps, bus.Range{Last: math.MaxInt64})
	}
	return gaps
}

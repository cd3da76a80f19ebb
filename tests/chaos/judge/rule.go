package judge

import (
	"fmt"
	"math"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// rule says which IDs may come for requests that were sent after from, and answered before until.
type rule struct {
	check       string
	from, until time.Time // zero: no bound
	ids         bus.Range // that may come; zero: none
	ahead       bool      // IDs that were fetched ahead are judged, too
	text        string    // what is wrong with others
	judged      bool      // the calls that were judged before the rule came, too
}

// broken returns the IDs of a range that the rule forbids; zero: none.
func (r *rule) broken(c callers.Call, ids bus.Range) bus.Range {
	switch {
	case c.Ahead && !r.ahead, !c.Sent.After(r.from), !r.until.IsZero() && !c.Ended.Before(r.until):
	case ids.First < r.ids.First:
		return bus.Range{First: ids.First, Last: min(ids.Last, r.ids.First-1)}
	case ids.Last > r.ids.Last:
		return bus.Range{First: max(ids.First, r.ids.Last+1), Last: ids.Last}
	}
	return bus.Range{}
}

// end says that answers that ended before asked have only IDs below first.
type end struct {
	first  int64
	asked  time.Time
	judged bool
}

// Strict demands that a request that is sent after the answer to another one gets only higher IDs, in one run. Call
// it before the first call of the tag.
func (j *Judge) Strict(tag string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tag(tag).strict = true
}

// Opaque demands that all IDs are in 1..last, the tag's domain. The IDs have no order, so the judge ignores floors,
// limits and ends of the tag: they are numbers, not IDs.
func (j *Judge) Opaque(tag string, last int64) {
	j.open(tag, rule{check: domain, ids: bus.Range{First: 1, Last: last}, ahead: true,
		text: fmt.Sprintf("is outside the domain 1-%d", last)})
}

// Floor demands that no ID below first comes for requests sent after at, when the command had returned.
func (j *Judge) Floor(tag string, first int64, at time.Time) {
	j.open(tag, rule{check: floor, from: at, ids: bus.Range{First: first, Last: math.MaxInt64},
		text: fmt.Sprintf("is below the floor %d, set at %s", first, clock(at))})
}

// Limit demands that no ID above last comes for requests sent after at, when the command had returned. Before you
// send a command that raises or removes the limit, call it with 0: from then on there is no limit.
func (j *Judge) Limit(tag string, last int64, at time.Time) {
	j.close(tag, at, limit)
	if last > 0 {
		j.open(tag, rule{check: limit, from: at, ids: bus.Range{First: 1, Last: last},
			text: fmt.Sprintf("is above the limit %d, set at %s", last, clock(at))})
	}
}

// Pause demands that no ID comes for requests sent after at, when the command had returned.
func (j *Judge) Pause(tag string, at time.Time) {
	j.open(tag, rule{check: paused, from: at, text: "came from a tag that was paused at " + clock(at)})
}

// Resume ends a pause. Call it before you send the command: an answer that comes after at is not judged.
func (j *Judge) Resume(tag string, at time.Time) { j.close(tag, at, paused) }

// Delete demands that no ID comes for requests sent after at, when the command had returned.
func (j *Judge) Delete(tag string, at time.Time) {
	j.open(tag, rule{check: deleted, from: at, text: "came from a tag that was deleted at " + clock(at)})
}

// Create ends a deletion, and the rules of the former tag. Call it before you send the command. Uniqueness, order and
// floors stay: a name goes on above all that it ever had.
func (j *Judge) Create(tag string, at time.Time) { j.close(tag, at, deleted, paused, limit) }

// End demands that answers that ended before asked have only IDs below first. At asked, or later, somebody sent the
// question for the tag's record, and the next unclaimed ID in the record is first.
func (j *Judge) End(tag string, first int64, asked time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t := j.tag(tag); !t.opaque {
		t.ends = append(t.ends, end{first: first, asked: asked})
	}
}

func (j *Judge) open(tag string, r rule) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.tag(tag)
	t.opaque = t.opaque || r.check == domain
	if !t.opaque || r.check != floor && r.check != limit {
		t.rules = append(t.rules, r)
	}
}

func (j *Judge) close(tag string, at time.Time, checks ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.tag(tag)
	for i := range t.rules {
		for _, check := range checks {
			if r := &t.rules[i]; r.check == check && r.until.IsZero() {
				r.until = at
			}
		}
	}
}

func clock(t time.Time) string { return t.Format("15:04:05.000000") }

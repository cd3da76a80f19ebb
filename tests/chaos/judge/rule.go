package judge

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// rule says which IDs may come for requests that were sent after from, and answered before until.
type rule struct {
	check       string
	ids         bus.Range // that may come; zero: none
	from, until time.Duration
	ahead       bool   // it holds for IDs that were fetched ahead, too
	text        string // what is wrong with other IDs
	judged      bool   // the answers that came before the rule, too
}

// broken returns some IDs of a span that the rule forbids, if there are any.
func (r *rule) broken(s span) (wrong span, ok bool) {
	switch {
	case s.ahead && !r.ahead, s.sent <= r.from, s.ended >= r.until:
		return span{}, false
	case s.First < r.ids.First:
		return s.part(s.First, min(s.Last, r.ids.First-1)), true
	default:
		return s.part(max(s.First, r.ids.Last+1), s.Last), s.Last > r.ids.Last
	}
}

// Strict demands that a request that is sent after the answer to another one gets only higher IDs, in one run. Call
// it before the first call of the tag.
func (j *Judge) Strict(tag string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tag(tag).strict = true
}

// Opaque demands that all IDs are in 1..last, the tag's domain. Floors, limits and ends of the tag are ignored: they
// are numbers, not IDs. Call it before the first call of the tag.
func (j *Judge) Opaque(tag string, last int64) {
	j.demand(tag, rule{
		check: domain, ids: bus.Range{First: 1, Last: last}, ahead: true, from: math.MinInt64, until: math.MaxInt64,
		text: fmt.Sprintf("is outside the domain 1-%d", last),
	})
}

// Floor demands that no ID below first comes for requests sent after at, when the command had returned.
func (j *Judge) Floor(tag string, first int64, at time.Time) {
	j.demand(tag, rule{
		check: floor, ids: bus.Range{First: first, Last: math.MaxInt64}, from: j.since(at), until: math.MaxInt64,
		text: fmt.Sprintf("is below the floor %d, set at %s", first, clock(at)),
	})
}

// Limit demands that no ID above last comes for requests sent after at, when the command had returned. Call it with 0
// before you send a command that raises or removes the limit: answers that end after at are not judged.
func (j *Judge) Limit(tag string, last int64, at time.Time) {
	j.end(tag, at, limit)
	if last > 0 {
		j.demand(tag, rule{
			check: limit, ids: bus.Range{First: 1, Last: last}, from: j.since(at), until: math.MaxInt64,
			text: fmt.Sprintf("is above the limit %d, set at %s", last, clock(at)),
		})
	}
}

// Pause demands that no ID comes for requests sent after at, when the command had returned.
func (j *Judge) Pause(tag string, at time.Time) { j.none(tag, paused, at) }

// Resume ends a pause. Call it before you send the command: answers that end after at are not judged.
func (j *Judge) Resume(tag string, at time.Time) { j.end(tag, at, paused) }

// Delete demands that no ID comes for requests sent after at, when the command had returned.
func (j *Judge) Delete(tag string, at time.Time) { j.none(tag, deleted, at) }

// Create ends a deletion, a pause and a limit. Call it before you send the command. Uniqueness, order and floors stay,
// because a tag that is created again goes on above all IDs of its name.
func (j *Judge) Create(tag string, at time.Time) { j.end(tag, at, deleted, paused, limit) }

// End demands that answers that ended before asked have only IDs below unclaimed. Somebody read the tag's record at
// asked or later, and that was the next unclaimed ID in it.
func (j *Judge) End(tag string, unclaimed int64, asked time.Time) {
	j.demand(tag, rule{
		check: ends, ids: bus.Range{First: 1, Last: unclaimed - 1}, ahead: true,
		from: math.MinInt64, until: j.since(asked),
		text: fmt.Sprintf("is not below %d, the end of the record at %s", unclaimed, clock(asked)),
	})
}

func (j *Judge) none(tag, check string, at time.Time) {
	j.demand(tag, rule{
		check: check, from: j.since(at), until: math.MaxInt64,
		text: fmt.Sprintf("came, but the tag was %s at %s", check, clock(at)),
	})
}

func (j *Judge) demand(tag string, r rule) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.tag(tag)
	t.opaque = t.opaque || r.check == domain
	if !t.opaque || !slices.Contains([]string{floor, limit, ends}, r.check) {
		t.rules = append(t.rules, r)
	}
}

// end ends the rules of these checks.
func (j *Judge) end(tag string, at time.Time, checks ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.tag(tag)
	for i := range t.rules {
		if r := &t.rules[i]; slices.Contains(checks, r.check) {
			r.until = min(r.until, j.since(at))
		}
	}
}

func clock(t time.Time) string { return t.Format("15:04:05.000000") }

// Package judge finds the first broken promise in the IDs that callers got. It knows no processes: callers report
// their calls, operators what they changed, and faults what they exclude.
package judge

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// The promises.
const (
	invalid = "invalid" // IDs are positive
	twice   = "twice"   // no ID of a tag's name comes twice, also after a deletion, and no snowflake
	order   = "order"   // of strict tags
	runs    = "runs"    // a strict tag answers with one run of IDs
	domain  = "domain"
	floor   = "floor"
	limit   = "limit"
	paused  = "paused"
	deleted = "deleted"
	ends    = "end"
)

const (
	// settle is how long an answer waits for answers that ended before it, and that are not added yet.
	settle = 300 * time.Millisecond
	// late is how much later than that an answer may be added, and is still judged by rules that have ended.
	late = time.Minute
	// kept is how long whole calls are kept, for [Judge.Around] and [Judge.Met].
	kept = 5 * time.Minute
)

// Judge collects calls and judges them. All methods are safe for concurrent use.
type Judge struct {
	began time.Time

	mu      sync.Mutex
	waiting []callers.Call   // not judged yet
	recent  [][]callers.Call // judged; each Check adds some
	until   time.Duration    // the answers that ended before are judged, except late ones
	tags    map[string]*tag
	kinds   []string
	excuses []*excuse
	found   *Violation
}

type tag struct {
	name           string
	strict, opaque bool
	taken          spans
	answers        history // of a strict tag
	rules          []rule
	excuses        []*excuse
}

// Violation is a broken promise.
type Violation struct {
	Check string // a stable word: invalid, twice, order, runs, domain, floor, limit, paused, deleted or end
	Tag   string
	Text  string         // for people; it names the calls
	Calls []callers.Call // that show it, the later one last; each with only the range that matters
	At    time.Time      // when the last call ended; of "end" when the record was asked for
}

// New returns a judge that demands only uniqueness.
func New() *Judge {
	return &Judge{began: time.Now(), tags: make(map[string]*tag)}
}

// Add reports a call. IDs that came with an error count.
func (j *Judge) Add(c callers.Call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting = append(j.waiting, c)
}

func (j *Judge) tag(name string) *tag {
	if j.tags[name] == nil {
		j.tags[name] = &tag{name: name}
	}
	return j.tags[name]
}

// since returns the time since the start of the judge, of a zero time the lowest.
func (j *Judge) since(t time.Time) time.Duration { return t.Sub(j.began) }

// bound is since, of a zero time the highest.
func (j *Judge) bound(t time.Time) time.Duration {
	if t.IsZero() {
		return math.MaxInt64
	}
	return j.since(t)
}

// Check judges the calls that ended 300 ms before now, and returns the first violation; nil: there is none so far.
func (j *Judge) Check(now time.Time) *Violation {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(j.tags)) {
		if j.found == nil {
			j.found = j.newRules(j.tags[name])
		}
	}
	until := now.Add(-settle)
	slices.SortStableFunc(j.waiting, byEnd)
	settled := sort.Search(len(j.waiting), func(i int) bool { return !j.waiting[i].Ended.Before(until) })
	for _, c := range j.waiting[:settled] {
		if j.found == nil {
			j.found = j.judge(c)
		}
	}
	if settled > 0 {
		j.recent = append(j.recent, j.waiting[:settled:settled])
		j.waiting = slices.Clone(j.waiting[settled:])
	}
	for len(j.recent) > 0 && j.recent[0][len(j.recent[0])-1].Ended.Before(until.Add(-kept)) {
		j.recent = j.recent[1:]
	}
	j.until = max(j.until, j.since(until))
	return j.found
}

func byEnd(x, y callers.Call) int { return x.Ended.Compare(y.Ended) }

// judge judges a call. Calls come here in the order in which they ended, except late ones.
func (j *Judge) judge(c callers.Call) *Violation {
	t := j.tag(c.Tag)
	for i, r := range c.Ranges {
		s := j.span(c, r)
		if r.First < 1 || r.Last < r.First {
			return j.violation(t, invalid, s.ended, "is no range of positive IDs", s, s)
		}
		if t.strict && i > 0 && len(t.forgive(runs, s.ended, s)) > 0 {
			return j.violation(t, runs, s.ended, fmt.Sprintf("is one of %d runs of IDs in an answer", len(c.Ranges)), s, s)
		}
		for k := range t.rules {
			if v := j.obey(t, &t.rules[k], s); v != nil {
				return v
			}
		}
		for _, first := range t.taken.add(s) {
			at := max(s.ended, first.ended)
			if left := t.forgive(twice, at, s.part(first.First, first.Last)); len(left) > 0 {
				return j.violation(t, twice, at, "came twice", left[0], first, s)
			}
		}
		if t.strict {
			if v := j.ordered(t, s); v != nil {
				return v
			}
		}
	}
	return nil
}

// newRules judges the answers that came before a rule, and forgets rules that have ended.
func (j *Judge) newRules(t *tag) *Violation {
	for i := range t.rules {
		r := &t.rules[i]
		if r.judged {
			continue
		}
		r.judged = true
		from := int64(1)
		if r.ids.First == 1 {
			from = r.ids.Last + 1
		}
		for s := range t.from(from) {
			if v := j.obey(t, r, s); v != nil {
				return v
			}
		}
	}
	t.rules = slices.DeleteFunc(t.rules, func(r rule) bool { return r.until < j.until-late })
	return nil
}

func (j *Judge) obey(t *tag, r *rule, s span) *Violation {
	wrong, ok := r.broken(s)
	if !ok {
		return nil
	}
	at := s.ended
	if r.check == ends {
		at = r.until
	}
	if left := t.forgive(r.check, at, wrong); len(left) > 0 {
		return j.violation(t, r.check, at, r.text, left[0], s)
	}
	return nil
}

// ordered finds IDs that are not above those of answers that ended before the request was sent.
func (j *Judge) ordered(t *tag, s span) *Violation {
	t.answers.add(s.ended, s.Last)
	for _, x := range t.excuses {
		x.answered(s)
	}
	if v := j.above(t, s); v != nil || s.ended >= j.until {
		return v
	}
	for later := range t.from(1) { // s is late: the calls that were judged before it, once more
		if later.First <= s.Last && later.sent > s.ended {
			if v := j.above(t, later); v != nil {
				return v
			}
		}
	}
	return nil
}

func (j *Judge) above(t *tag, s span) *Violation {
	highest := t.answers.before(s.sent)
	if s.First > highest {
		return nil
	}
	left := t.forgive(order, s.ended, s.part(s.First, min(s.Last, highest)))
	if len(left) == 0 {
		return nil
	}
	earlier := span{ended: math.MinInt64}
	for old := range t.from(left[0].First) {
		if old.ended < s.sent && old.ended > earlier.ended {
			earlier = old
		}
	}
	return j.violation(t, order, s.ended, "is not above the IDs of an answer that had ended", left[0], earlier, s)
}

// from yields all that came and ends at id or above, also what is excused.
func (t *tag) from(id int64) iter.Seq[span] {
	return func(yield func(span) bool) {
		for s := range t.taken.from(id) {
			if !yield(s) {
				return
			}
		}
		for _, x := range t.excuses {
			for s := range x.taken.from(id) {
				if !yield(s) {
					return
				}
			}
		}
	}
}

func (j *Judge) violation(t *tag, check string, at time.Duration, text string, wrong span, calls ...span) *Violation {
	v := &Violation{Check: check, Tag: t.name, At: j.began.Add(at), Text: fmt.Sprintf("%q: %v %s", t.name, wrong, text)}
	for _, s := range calls {
		c := callers.Call{
			Kind: j.kinds[s.kind], Tag: t.name, Ahead: s.ahead, Sent: j.began.Add(s.sent), Ended: j.began.Add(s.ended),
			Ranges: []bus.Range{s.Range},
		}
		v.Calls = append(v.Calls, c)
		v.Text += fmt.Sprintf("\n\t%s got %v, sent %s, answered %s", c.Kind, s.Range, clock(c.Sent), clock(c.Ended))
	}
	return v
}

func (j *Judge) span(c callers.Call, r bus.Range) span {
	kind := slices.Index(j.kinds, c.Kind)
	if kind < 0 {
		kind, j.kinds = len(j.kinds), append(j.kinds, c.Kind)
	}
	return span{Range: r, sent: j.since(c.Sent), ended: j.since(c.Ended), kind: uint32(kind), ahead: c.Ahead}
}

// Package judge finds the first broken promise in the IDs that callers got. It knows no processes: callers report
// their calls, operators what they changed, and faults what they exclude.
package judge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// The promises.
const (
	invalid = "invalid" // a range is not one of positive IDs
	twice   = "twice"   // an ID came twice: of a tag's name, also after a deletion, or of the snowflakes
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
	// settle is how long a call waits for those that ended before it and are not added yet.
	settle = 300 * time.Millisecond
	// kept is how long whole calls are kept, for [Judge.Around] and [Judge.Met].
	kept = 5 * time.Minute
)

// Judge collects calls and judges them. All methods are safe for concurrent use.
type Judge struct {
	began time.Time

	mu      sync.Mutex
	waiting []callers.Call // to be judged
	recent  []callers.Call // judged
	until   time.Time      // answers that ended before are judged
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
	ends           []end
	excuses        []*excuse
}

// Violation is a broken promise.
type Violation struct {
	Check string // a stable word: invalid, twice, order, runs, domain, floor, limit, paused, deleted or end
	Tag   string
	Text  string
	Calls []callers.Call // that show it. Of a call long ago only the range that matters
	At    time.Time      // when the last of them ended; of "end" when the record was asked
}

// New returns a judge that demands nothing but uniqueness.
func New() *Judge { return &Judge{began: time.Now(), tags: make(map[string]*tag)} }

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

func (j *Judge) since(t time.Time) time.Duration { return t.Sub(j.began) }

// Check judges the calls that ended some time before now, and returns the first violation; nil: there is none.
func (j *Judge) Check(now time.Time) *Violation {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(j.tags)) {
		if j.found == nil {
			j.found = j.judgeByNewRules(j.tags[name])
		}
	}
	until := now.Add(-settle)
	slices.SortStableFunc(j.waiting, byEnd)
	for len(j.waiting) > 0 && j.found == nil && j.waiting[0].Ended.Before(until) {
		c := j.waiting[0]
		j.waiting, j.recent = j.waiting[1:], append(j.recent, c)
		j.found = j.judge(c)
	}
	for _, name := range slices.Sorted(maps.Keys(j.tags)) {
		if j.found == nil {
			j.found = j.judgeByNewEnds(j.tags[name], until)
		}
	}
	if j.found == nil {
		j.until = until
	}
	if half := len(j.recent) / 2; half > 0 && j.recent[half].Ended.Before(until.Add(-kept)) {
		j.recent = slices.Clone(j.recent[half:])
	}
	return j.found
}

func byEnd(x, y callers.Call) int { return x.Ended.Compare(y.Ended) }

// judge judges a call that is the last one that ended, or a late one.
func (j *Judge) judge(c callers.Call) *Violation {
	t, late := j.tag(c.Tag), c.Ended.Before(j.until)
	for _, r := range c.Ranges {
		if r.First < 1 || r.Last < r.First {
			return t.violation(invalid, c.Ended, fmt.Sprintf("%v is no range of positive IDs", r), c)
		}
	}
	if t.strict && len(c.Ranges) > 1 && len(t.forgive(runs, c.Ended, c.Ranges[0], nil)) > 0 {
		return t.violation(runs, c.Ended, fmt.Sprintf("an answer of a strict tag has %d runs", len(c.Ranges)), c)
	}
	for _, r := range c.Ranges {
		for i := range t.rules {
			if v := t.obey(&t.rules[i], c, r); v != nil {
				return v
			}
		}
		if v := j.once(t, c, r); v != nil {
			return v
		}
	}
	if v := j.ordered(t, c, late); v != nil || !late {
		return v
	}
	for i := range t.ends { // an end was judged without this call
		t.ends[i].judged = false
	}
	return nil
}

// judgeByNewRules judges the calls that were judged before by the rules that came since.
func (j *Judge) judgeByNewRules(t *tag) *Violation {
	for i := range t.rules {
		r := &t.rules[i]
		if r.judged {
			continue
		}
		r.judged = true
		for _, c := range j.recent {
			for k := 0; c.Tag == t.name && k < len(c.Ranges); k++ {
				if v := t.obey(r, c, c.Ranges[k]); v != nil {
					return v
				}
			}
		}
	}
	return nil
}

// judgeByNewEnds waits until all answers that ended before the record was asked are judged.
func (j *Judge) judgeByNewEnds(t *tag, until time.Time) *Violation {
	for i := range t.ends {
		if e := &t.ends[i]; !e.judged && e.asked.Before(until) {
			e.judged = true
			if v := j.ended(t, *e); v != nil {
				return v
			}
		}
	}
	return nil
}

func (t *tag) obey(r *rule, c callers.Call, ids bus.Range) *Violation {
	wrong := r.broken(c, ids)
	if wrong == (bus.Range{}) {
		return nil
	}
	if left := t.forgive(r.check, c.Ended, wrong, nil); len(left) > 0 {
		return t.violation(r.check, c.Ended, fmt.Sprintf("%v %s", left[0], r.text), c)
	}
	return nil
}

// once finds IDs that came before.
func (j *Judge) once(t *tag, c callers.Call, r bus.Range) *Violation {
	for _, first := range t.taken.add(j.compact(c, r)) {
		left := t.forgive(twice, c.Ended, first.Range, func(x *excuse, ids bus.Range) (refused []bus.Range) {
			for _, again := range x.taken.add(j.compact(c, ids)) {
				refused = append(refused, again.Range)
			}
			return refused
		})
		if len(left) > 0 {
			return t.violation(twice, c.Ended, fmt.Sprintf("%v came twice", left[0]), j.call(t, first), c)
		}
	}
	return nil
}

// ordered adds a call to a strict tag's history, and finds IDs that are not above those of earlier answers.
func (j *Judge) ordered(t *tag, c callers.Call, late bool) *Violation {
	if !t.strict || len(c.Ranges) == 0 {
		return nil
	}
	ended := j.since(c.Ended)
	for _, r := range c.Ranges {
		t.answers.add(ended, r.Last)
	}
	for _, x := range t.excuses {
		x.answered(ended, c.Ended, c.Ranges)
	}
	v := j.above(t, c)
	for i := 0; late && v == nil && i < len(j.recent); i++ {
		if d := j.recent[i]; d.Tag == c.Tag && d.Sent.After(c.Ended) {
			v = j.above(t, d)
		}
	}
	return v
}

// above finds IDs of a call that are not above those of the answers that ended before it was sent.
func (j *Judge) above(t *tag, c callers.Call) *Violation {
	sent := j.since(c.Sent)
	highest := t.answers.before(sent)
	for _, r := range c.Ranges {
		if r.First > highest {
			continue
		}
		wrong := bus.Range{First: r.First, Last: min(r.Last, highest)}
		left := t.forgive(order, c.Ended, wrong, func(x *excuse, ids bus.Range) []bus.Range {
			if x.answers.before(sent) >= ids.First {
				return []bus.Range{ids}
			}
			return nil
		})
		if len(left) == 0 {
			continue
		}
		return t.violation(order, c.Ended, fmt.Sprintf("%v is not above the IDs of an answer that ended before the request was sent",
			left[0]), append(j.earlier(t, left[0].First, sent), c)...)
	}
	return nil
}

// earlier returns the last call that ended before a moment and has an ID at id or above, if a first owner of IDs is one.
func (j *Judge) earlier(t *tag, id int64, before time.Duration) (found []callers.Call) {
	last := time.Duration(math.MinInt64)
	sets := []*spans{&t.taken}
	for _, x := range t.excuses {
		sets = append(sets, &x.taken)
	}
	for _, set := range sets {
		for old := range set.from(id) {
			if old.ended < before && old.ended > last {
				last, found = old.ended, []callers.Call{j.call(t, old)}
			}
		}
	}
	return found
}

// ended finds IDs that an answer had before the record's end, which is below them, was asked for.
func (j *Judge) ended(t *tag, e end) *Violation {
	asked := j.since(e.asked)
	for old := range t.taken.from(e.first) {
		if old.ended >= asked {
			continue
		}
		wrong := bus.Range{First: max(old.First, e.first), Last: old.Last}
		if left := t.forgive(ends, e.asked, wrong, nil); len(left) > 0 {
			return t.violation(ends, e.asked, fmt.Sprintf("%v is not below %d, the end of the record at %s",
				left[0], e.first, clock(e.asked)), j.call(t, old))
		}
	}
	return nil
}

func (t *tag) violation(check string, at time.Time, text string, calls ...callers.Call) *Violation {
	text = fmt.Sprintf("%q: %s", t.name, text)
	for _, c := range calls {
		text += fmt.Sprintf("\n\t%s got %v, sent %s, answered %s", c.Kind, c.Ranges, clock(c.Sent), clock(c.Ended))
	}
	return &Violation{Check: check, Tag: t.name, Text: text, Calls: calls, At: at}
}

func (j *Judge) compact(c callers.Call, r bus.Range) span {
	kind := slices.Index(j.kinds, c.Kind)
	if kind < 0 {
		kind, j.kinds = len(j.kinds), append(j.kinds, c.Kind)
	}
	took := min(max(c.Ended.Sub(c.Sent).Microseconds(), 0), math.MaxUint32)
	return span{Range: r, ended: j.since(c.Ended), took: uint32(took), kind: uint32(kind)}
}

// call is the call of a span, with the IDs of the span only.
func (j *Judge) call(t *tag, s span) callers.Call {
	ended := j.began.Add(s.ended)
	return callers.Call{
		Kind: j.kinds[s.kind], Tag: t.name, Sent: ended.Add(-time.Duration(s.took) * time.Microsecond), Ended: ended,
		Ranges: []bus.Range{s.Range},
	}
}

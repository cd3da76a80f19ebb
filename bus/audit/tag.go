package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/leafbus/leafbus/bus"
)

// tagTrail is what the events and the record say of a tag.
type tagTrail struct {
	claims  []claim         // of its refill events, in the order of the stream
	damaged []Contradiction // events that cannot be read
	record  Record
}

// audit compares the events with the tag's record, which was read later.
func (t *tagTrail) audit(tag string) TagAudit {
	a := TagAudit{Record: t.record, Contradictions: []Contradiction{}}
	a.Tag = tag
	if len(t.claims) > 0 {
		a.Since = t.claims[0].time()
	}
	a.contradict(t.damaged...)
	claims := sorted(t.claims, nil)
	a.count(claims)
	if a.Problem != "" {
		a.contradict(about(DamagedRecord, tag, bus.Range{}, "%s", a.Problem))
	}
	if l := a.Last; l != nil {
		if r := (bus.Range{First: l.First, Last: l.Last}); r.First < 1 || r.Last < r.First || r.Last >= int64(a.End) {
			a.contradict(about(DamagedRecord, tag, r, "the record says that %s claimed %d to %d last, but also that all "+
				"claims end below %d", l.Node, l.First, l.Last, a.End))
		}
		claims = sorted(claims, l)
	}
	if a.Problem == "" { // else the end is not known
		a.above(claims)
	}
	a.overlaps(claims)
	return a
}

func (a *TagAudit) contradict(found ...Contradiction) {
	a.Contradictions = append(a.Contradictions, found[:min(len(found), mostContradictions-len(a.Contradictions))]...)
}

// count counts what the events report. claims are sorted.
func (a *TagAudit) count(claims []claim) {
	var next, below int64 // the first ID after all claims so far; reported IDs below the end
	for i, c := range claims {
		if i == 0 {
			a.From, next = bus.ID(c.First), c.First
		}
		if r := (bus.Range{First: max(c.First, next), Last: c.Last}); r.First <= r.Last {
			a.Reported = plus(a.Reported, r.Len())
			below = plus(below, max(0, min(r.Last, int64(a.End)-1)-r.First+1))
			next = plus(c.Last, 1)
		}
	}
	if a.Events = int64(len(claims)); a.Events > 0 {
		a.Unreported = max(0, int64(a.End-a.From)-below)
	}
}

// above names claims of events above the end of all claims. A record that was put back contradicts
// all events since: the highest is named.
func (a *TagAudit) above(claims []claim) {
	end := int64(a.End)
	claims = slices.DeleteFunc(slices.Clone(claims), func(c claim) bool { return c.message == 0 || c.Last < end })
	if len(claims) == 0 {
		return
	}
	highest := slices.MaxFunc(claims, func(x, y claim) int { return cmp.Compare(x.Last, y.Last) })
	others := ""
	if len(claims) > 1 {
		others = fmt.Sprintf(", and %d other events report claims up there", len(claims)-1)
	}
	record := fmt.Sprintf("by its record all claims end below %d: the record was put back, or an event is forged", end)
	if end == 0 {
		record = "the tag has no record: it was lost, or an event is forged"
	}
	ids := bus.Range{First: max(claims[0].First, end), Last: highest.Last}
	a.contradict(about(Unclaimed, a.Tag, ids, "%v%s, but %s", highest, others, record))
}

// overlaps names each claim that has IDs of a claim before it. claims are sorted.
func (a *TagAudit) overlaps(claims []claim) {
	for i, top := 1, 0; i < len(claims); i++ { // top reaches furthest
		c, o := claims[i], claims[top]
		if c.First <= o.Last {
			both := bus.Range{First: c.First, Last: min(c.Last, o.Last)}
			a.contradict(about(Overlap, a.Tag, both, "%v, and %v", o, c))
		}
		if c.Last > o.Last {
			top = i
		}
	}
}

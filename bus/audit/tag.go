package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

// mostContradictions is how many contradictions of one tag or worker are named.
const mostContradictions = 100

// tagTrail is what the events say of a tag.
type tagTrail struct {
	runs    Runs
	events  int64
	since   time.Time       // when the first refill event was published
	top     events.Refill   // the one with the highest range
	shares  []Share         // by node; there are few
	moves   []int64         // max_ids that operators set
	damaged []Contradiction // events that cannot be read
}

// refill adds a refill event.
func (t *tagTrail) refill(at time.Time, e events.Refill) {
	if t.events++; t.events == 1 {
		t.since = at
	}
	r := allocator.Range{First: e.First, Last: e.Last}
	t.runs.Add(r)
	if e.Last >= t.top.Last {
		t.top = e
	}
	i := slices.IndexFunc(t.shares, func(s Share) bool { return s.Node == e.Node })
	if i < 0 {
		i = len(t.shares)
		t.shares = append(t.shares, Share{Node: e.Node})
	}
	t.shares[i].Refills++
	t.shares[i].IDs = plus(t.shares[i].IDs, r.Len())
}

// move adds a max_id that an operator set.
func (t *tagTrail) move(maxID int64) {
	if i, found := slices.BinarySearch(t.moves, maxID); !found {
		t.moves = slices.Insert(t.moves, i, maxID)
	}
}

// audit compares the events with the tag's claims, which were read later. doubts are IDs that two claims may share, or
// that were claimed above the end. [doubt] names the claims.
func (t *tagTrail) audit(store string, c admin.TagClaims) (a TagAudit, doubts []bus.Range) {
	a = TagAudit{
		TagClaims: c, Store: store, Events: t.events, Since: t.since, Shares: t.shares,
		Contradictions: append([]Contradiction{}, t.damaged...),
	}
	if a.Shares == nil {
		a.Shares = []Share{}
	}
	slices.SortFunc(a.Shares, func(x, y Share) int { return cmp.Or(cmp.Compare(y.IDs, x.IDs), cmp.Compare(x.Node, y.Node)) })
	runs := t.runs.Finish()
	for i, r := range runs {
		a.Reported += r.Len()
		if i > 0 {
			lost, skipped := t.between(runs[i-1].Last, r.First)
			a.Lost, a.Skipped = a.Lost+lost, a.Skipped+skipped
			if lost > 0 {
				a.Gaps++
			}
		}
	}
	if len(runs) > 0 {
		a.From = bus.ID(runs[0].First)
		if int64(c.End) > t.top.Last {
			unreported, skipped := t.between(t.top.Last, int64(c.End))
			a.Unreported, a.Skipped = unreported, a.Skipped+skipped
		}
	}
	_, repeated := t.runs.Repeated()
	for _, r := range repeated { // the first ID is enough to find both events
		doubts = append(doubts, bus.Range{First: r.First, Last: r.First})
	}
	if c.Problem != "" {
		a.Contradictions = append(a.Contradictions, Contradiction{Kind: DamagedRecord, Tag: c.Tag, Message: c.Problem})
		return a, doubts // End is not known
	}
	if t.top.Last >= int64(c.End) && t.events > 0 {
		doubts = append(doubts, bus.Range{First: max(int64(c.End), 1), Last: t.top.Last})
	}
	if l := c.Last; l != nil && *l != claimOf(t.top, l.Time) {
		r := bus.Range{First: l.First, Last: l.Last}
		if slices.ContainsFunc(runs, r.Overlaps) { // by an older event of the same claim, or by another claim
			doubts = append(doubts, r)
		}
	}
	a.Contradictions = append(a.Contradictions, record(c)...)
	return a, doubts
}

// between counts the IDs between two ranges that events report: lost ones, and those that an operator skipped.
func (t *tagTrail) between(last, next int64) (lost, skipped int64) {
	i, found := slices.BinarySearch(t.moves, next)
	switch {
	case found:
		skipped = next - last - 1
	case i > 0 && t.moves[i-1] > last:
		skipped = t.moves[i-1] - last - 1
	}
	return next - last - 1 - skipped, skipped
}

// record returns what the tag's records contradict among themselves.
func record(c admin.TagClaims) (found []Contradiction) {
	if c.MaxID > 0 && c.MaxID < c.End {
		found = append(found, Contradiction{Kind: StoreBehind, Tag: c.Tag, First: c.MaxID, Last: c.End - 1, Message: fmt.Sprintf(
			"the database has max_id %d, and all IDs below %d are claimed: the database went backwards. No ID repeats: "+
				"the next refill moves it up, and `leaf tag advance %s` does so now", c.MaxID, c.End, c.Tag)})
	}
	if l := c.Last; l != nil && (l.First < 1 || l.Last < l.First || l.Last >= int64(c.End)) {
		found = append(found, Contradiction{Kind: DamagedRecord, Tag: c.Tag, First: bus.ID(l.First), Last: bus.ID(l.Last), Message: fmt.Sprintf(
			"the record says that %s claimed %d to %d last, but also that all claims end below %d", l.Node, l.First, l.Last, c.End)})
	}
	return found
}

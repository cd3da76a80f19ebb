package judge

import (
	"maps"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// calls returns the calls of the last minutes for which want is true, in the order in which they ended.
func (j *Judge) calls(want func(callers.Call) bool) (found []callers.Call) {
	j.mu.Lock()
	for _, set := range append(slices.Clip(j.recent), j.waiting) {
		for _, c := range set {
			if want(c) {
				found = append(found, c)
			}
		}
	}
	j.mu.Unlock()
	slices.SortStableFunc(found, byEnd)
	return found
}

// Around returns the calls of the violation's tag that were under way within d of it, as far as they are added.
func (j *Judge) Around(v *Violation, d time.Duration) []callers.Call {
	return j.calls(func(c callers.Call) bool {
		return c.Tag == v.Tag && !c.Ended.Before(v.At.Add(-d)) && !c.Sent.After(v.At.Add(d))
	})
}

// Met returns what each kind of caller met in a time of the last minutes.
func (j *Judge) Met(from, until time.Time) map[string]callers.Met {
	return callers.Meet(j.calls(func(callers.Call) bool { return true }), from, until)
}

// Tags returns the names of all tags that the judge knows, sorted.
func (j *Judge) Tags() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(maps.Keys(j.tags))
}

// IsOpaque reports whether a tag is opaque: its IDs are no numbers, and have no order.
func (j *Judge) IsOpaque(tag string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tag(tag).opaque
}

// Taken returns all IDs of a tag that were judged, joined.
func (j *Judge) Taken(tag string) (ids []bus.Range) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for s := range j.tag(tag).taken.from(1) {
		if last := len(ids) - 1; last >= 0 && ids[last].Last+1 == s.First {
			ids[last].Last = s.Last
		} else {
			ids = append(ids, s.Range)
		}
	}
	return ids
}

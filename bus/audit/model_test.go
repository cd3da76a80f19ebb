package audit

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
)

// history is what happened to a tag, and what a map of its IDs makes of that.
type history struct {
	tag    string
	events []modelEvent // those that were not lost
	end    int64
	last   *allocator.Claim
}

type modelEvent struct {
	allocator.Claim
	tag string
	id  int
}

// newHistory makes up claims. Most follow each other. Some have IDs that were claimed before, some events are lost, and
// some records were put back.
func newHistory(random *rand.Rand, tag string, id *int) *history {
	h := &history{tag: tag, end: 1 + random.Int64N(50)}
	wild := random.IntN(2) == 0
	for range random.IntN(30) {
		c := allocator.Claim{First: h.end, Node: fmt.Sprint("n", random.IntN(3))}
		switch random.IntN(10) {
		case 0:
			c.First += random.Int64N(20) // a range is lost
		case 1:
			if wild && random.IntN(3) == 0 {
				c.First = 1 + random.Int64N(h.end)
			}
		}
		c.Last = c.First + random.Int64N(10)
		if wild && h.last != nil && random.IntN(40) == 0 {
			c = *h.last // the same claim once more
		}
		c.Time = eventTime(*id)
		if random.IntN(5) > 0 {
			h.events = append(h.events, modelEvent{c, tag, *id})
		}
		*id++
		h.end, h.last = max(h.end, c.Last+1), &c
	}
	switch {
	case wild && random.IntN(10) == 0:
		h.end = 1 + random.Int64N(h.end) // put back
		h.last = nil
	case random.IntN(4) == 0:
		h.last = nil // it was written again by hand
	}
	return h
}

// want is what an audit must find.
func (h *history) want() (kinds []string, a TagAudit) {
	times := make(map[int64]int)
	recorded := h.last == nil
	var top int64
	a.From = bus.ID(h.end)
	for _, e := range h.events {
		recorded = recorded || e.First == h.last.First && e.Last == h.last.Last && e.Node == h.last.Node
		for id := e.First; id <= e.Last; id++ {
			times[id]++
		}
		top = max(top, e.Last)
	}
	a.Events, a.Reported = int64(len(h.events)), int64(len(times))
	overlap := false
	for _, n := range times {
		overlap = overlap || n > 1
	}
	if !recorded {
		for id := h.last.First; id <= h.last.Last; id++ {
			overlap = overlap || times[id] > 0
		}
	}
	if overlap {
		kinds = append(kinds, string(Overlap))
	}
	if top >= h.end && top > 0 {
		kinds = append(kinds, string(Unclaimed))
	}
	within := false
	for id := int64(1); id <= top; id++ {
		reported := times[id] > 0
		if reported && !within {
			a.From, within = bus.ID(id), true
		}
		if within && !reported && id < h.end {
			a.Unreported++
		}
	}
	if len(h.events) > 0 {
		a.Unreported += max(0, h.end-1-top)
	} else {
		a.From = 0
	}
	return kinds, a
}

// Whatever generators claimed, and whichever events were lost, came late or came twice: an audit finds a contradiction
// if and only if a map of the IDs does, and counts as it does.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	e := newEvidence(t)
	var all []*history
	var tags []string
	published := make(map[string][]modelEvent) // by node, in its order
	id := 0
	for i := range 150 {
		h := newHistory(random, fmt.Sprintf("t%03d", i), &id)
		all, tags = append(all, h), append(tags, h.tag)
		e.claimed(h.tag, h.end, h.last)
		for _, event := range h.events {
			published[event.Node] = append(published[event.Node], event)
			if random.IntN(20) == 0 { // no answer came
				published[event.Node] = append(published[event.Node], event)
			}
		}
	}
	for len(published) > 0 { // generators are of different speed
		node := fmt.Sprint("n", random.IntN(3))
		if list := published[node]; len(list) > 0 {
			e.refill(list[0].tag, node, list[0].First, list[0].Last, list[0].id)
			published[node] = list[1:]
		} else {
			delete(published, node)
		}
	}
	named, whole := e.audit(nil, tags...), e.audit(nil)
	bad := 0
	for i, h := range all {
		want, counts := h.want()
		found := named.Tags[i]
		if got := kinds(named.Contradictions, h.tag); got != fmt.Sprint(want) {
			t.Errorf("%s: an audit found %s, want %v: %+v, %+v", h.tag, got, want, h, found.Contradictions)
		}
		if contradicts := kinds(whole.Contradictions, h.tag) != "[]"; contradicts != (len(want) > 0) {
			t.Errorf("%s: an audit of all found %v, want %v", h.tag, whole.Tags[i].Contradictions, want)
		}
		if len(want) > 0 {
			bad++
		}
		type numbers struct{ events, from, reported, unreported int64 }
		count := func(a TagAudit) numbers {
			return numbers{a.Events, int64(a.From), a.Reported, a.Unreported}
		}
		for _, got := range []TagAudit{found, whole.Tags[i]} {
			if got.Tag != h.tag || count(got) != count(counts) {
				t.Errorf("%s: %+v, want %+v", h.tag, got, counts)
			}
		}
	}
	t.Logf("%d of %d tags have contradictions", bad, len(all))
	if bad < 10 || bad > 140 {
		t.Errorf("%d of %d histories have contradictions: that shows little", bad, len(all))
	}
}

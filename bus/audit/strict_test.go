package audit

import (
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/idspace"
)

// strict sets how far a strict tag is claimed, and its last claim.
func (e *evidence) strict(tag string, end int64, last *allocator.Claim) {
	e.records[tag] = Record{Order: idspace.OrderStrict, End: bus.ID(end), Last: last}
}

// A strict tag has no refill events, so its IDs are neither lost nor unreported. An event of it is forged: it is a
// contradiction if it claims IDs above the end.
func TestAuditOfStrictTags(t *testing.T) {
	t.Parallel()
	e := newEvidence(t)
	last := &allocator.Claim{First: 91, Last: 100, Node: "a", Time: eventTime(1)}
	e.strict("invoice", 101, last)
	e.strict("order", 101, last)
	e.refill("order", "f", 101, 110, 2)
	e.strict("below", 101, last)
	e.refill("below", "f", 1, 10, 3)
	e.records["marker"] = Record{Order: idspace.OrderStrict}
	var taken Taken // no event has any of them, and that is not worth a word
	taken.Add("invoice", bus.Range{First: 1, Last: 104})
	for _, tags := range [][]string{nil, {"below", "marker", "order"}} {
		r := e.audit(&taken, tags...)
		if *r.Taken != (TakenReport{IDs: 104, Unclaimed: 4}) {
			t.Errorf("%+v", r.Taken)
		}
		found := slices.DeleteFunc(r.Contradictions, func(c Contradiction) bool {
			return c.Tag == "invoice" && c.Kind == TakenUnclaimed && c.First == 101
		})
		e.want(found, "unclaimed 101-110: f claimed 101 to 110, message 1 of LEAF_EVENTS, the record was put back, or an event is forged")
		for _, a := range r.Tags {
			if a.Order != idspace.OrderStrict {
				t.Errorf("%+v", a)
			}
			if a.Tag == "invoice" && (a.Events+a.Reported+a.Unreported > 0 || a.End != 101 || a.Last != last) {
				t.Errorf("%+v", a)
			}
		}
	}
}

// A trace of a strict tag knows the last claim. It does not guess why an older one is not recorded.
func TestTraceOfStrictTags(t *testing.T) {
	t.Parallel()
	e := newEvidence(t)
	e.strict("invoice", 101, &allocator.Claim{First: 91, Last: 100, Node: "a", Time: eventTime(1)})
	e.strict("moved", 501, nil)
	e.strict("forged", 101, nil)
	e.refill("forged", "f", 1, 10, 2)
	<-e.js.PublishAsyncComplete()
	for _, c := range []struct {
		tag     string
		id      int64
		outcome TraceOutcome
		claims  int
		words   string
	}{
		{"invoice", 100, Claimed, 1, "claimed by a"},
		{"invoice", 90, NotRecorded, 0, "Claims of a strict tag are not kept one by one"},
		{"invoice", 101, NotClaimed, 0, "invoice is claimed below 101"},
		{"moved", 500, NotRecorded, 0, "not kept one by one"},
		{"forged", 5, Claimed, 1, "claimed by f"},
		{"forged", 50, NotRecorded, 0, "not kept one by one"},
	} {
		got, err := TraceTag(t.Context(), e.source(), c.tag, c.id)
		if err != nil || got.Outcome != c.outcome || len(got.Claims) != c.claims || !strings.Contains(got.Message, c.words) || got.Order != idspace.OrderStrict {
			t.Errorf("%s %d: %+v, %v; want %s: %s", c.tag, c.id, got, err, c.outcome, c.words)
		}
		if c.claims == 0 && strings.Contains(got.Message, "stream") {
			t.Errorf("%s %d: %s", c.tag, c.id, got.Message)
		}
	}
}

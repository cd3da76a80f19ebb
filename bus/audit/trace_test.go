package audit

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/idspace"
)

// Each outcome of a trace, with who claimed the ID and what the message says.
func TestTraceTag(t *testing.T) {
	t.Parallel()
	e := newEvidence(t)
	e.refill("order", "b", 111, 120, 2) // of a generator that was faster
	e.refill("order", "a", 101, 110, 1)
	e.refill("order", "a", 101, 110, 1) // published twice
	e.refill("order", "a", 131, 140, 3)
	e.refill("order", "c", 136, 145, 4)
	e.refill("order", "a", 151, 160, 5)
	e.claimed("order", 181, &allocator.Claim{First: 171, Last: 180, Node: "d", Time: eventTime(6)})
	e.claimed("recorded", 161, &allocator.Claim{First: 151, Last: 160, Node: "a", Time: eventTime(5)})
	e.refill("same", "a", 1, 10, 5)
	e.claimed("same", 11, &allocator.Claim{First: 1, Last: 10, Node: "a", Time: eventTime(4)})
	e.claimed("quiet", 501, nil)
	e.refill("broken", "a", 1, 10, 7)
	e.refill("behind", "a", 1, 10, 8)
	e.claimed("behind", 6, nil)
	e.refill("without", "a", 1, 10, 9)
	e.records["broken"] = Record{Problem: "garbage"}
	// Of a strict tag only the last claim is recorded. An event of it is forged.
	e.refill("invoice", "f", 1, 10, 2)
	e.records["invoice"] = Record{Order: idspace.OrderStrict, End: 101,
		Last: &allocator.Claim{First: 91, Last: 100, Node: "a", Time: eventTime(1)}}
	<-e.js.PublishAsyncComplete()
	for _, c := range []struct {
		tag     string
		id      int64
		outcome TraceOutcome
		claims  string
		words   string
	}{
		{"order", 101, Claimed, "a 101-110", "claimed by a"},
		{"order", 111, Claimed, "b 111-120", "claimed by b"},
		{"order", 100, NotRecorded, "", "no longer recorded"},
		{"order", 150, Gap, "", "no event reports it"},
		{"order", 140, Claimed, "a 131-140 c 136-145", "claimed 2 times, which must not be: `leaf audit order`"},
		{"order", 175, Claimed, "d 171-180 record", "claimed by d"},
		{"order", 181, NotClaimed, "", "order is claimed below 181"},
		{"recorded", 155, Claimed, "a 151-160 record", "claimed by a"},
		{"same", 5, Claimed, "a 1-10", "claimed by a"},
		{"quiet", 501, NotClaimed, "", "claimed below 501"},
		{"behind", 6, Claimed, "a 1-10", "by its record all claims end below 6: `leaf audit behind`"},
		{"without", 5, Claimed, "a 1-10", "all claims end below 1: `leaf audit without`"},
		{"broken", 5, Claimed, "a 1-10", "claimed by a"},
		{"invoice", 100, Claimed, "a 91-100 record", "claimed by a"},
		{"invoice", 90, NotRecorded, "", "Claims of a strict tag are not kept one by one"},
		{"invoice", 101, NotClaimed, "", "invoice is claimed below 101"},
		{"invoice", 5, Claimed, "f 1-10", "claimed by f"},
	} {
		got, err := TraceTag(t.Context(), e.source(), c.tag, c.id)
		if err != nil {
			t.Errorf("%s %d: %v", c.tag, c.id, err)
			continue
		}
		var claims []string
		for _, claim := range got.Claims {
			text := fmt.Sprintf("%s %d-%d", claim.Node, claim.First, claim.Last)
			if claim.Record {
				text += " record"
			}
			claims = append(claims, text)
		}
		if got.Outcome != c.outcome || strings.Join(claims, " ") != c.claims || !strings.Contains(got.Message, c.words) || got.Claims == nil {
			t.Errorf("%s %d: %s by %q: %s; want %s by %q: %s", c.tag, c.id, got.Outcome, claims, got.Message, c.outcome, c.claims, c.words)
		}
		if got.End != e.records[c.tag].End || got.ID != bus.ID(c.id) || got.Tag != c.tag {
			t.Errorf("%s %d: %+v", c.tag, c.id, got)
		}
	}
	if _, err := TraceTag(t.Context(), e.source(), "nosuch", 5); !errors.Is(err, allocator.ErrUnknownTag) {
		t.Errorf("an unknown tag: %v", err)
	}
	if _, err := TraceTag(t.Context(), e.source(), "broken", 50); err == nil || !strings.Contains(err.Error(), "garbage") {
		t.Errorf("a damaged record: %v", err)
	}
}

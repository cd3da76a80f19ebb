package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/wire"
)

// Each contradiction between claims is named: its kind, IDs, and both generators. What is no contradiction is not.
func TestContradictoryClaims(t *testing.T) {
	t.Parallel()
	type refill struct {
		node        string
		first, last int64
		id          int
	}
	claim := func(node string, first, last int64) *allocator.Claim {
		return &allocator.Claim{First: first, Last: last, Node: node, Time: eventTime(99)}
	}
	for name, c := range map[string]struct {
		events []refill
		end    int64
		last   *allocator.Claim
		want   string // kind first-last, and words of the message, for each
	}{
		"healthy":                         {[]refill{{"a", 1, 10, 1}, {"b", 11, 20, 2}}, 21, claim("b", 11, 20), ""},
		"the last event is late":          {[]refill{{"a", 1, 10, 1}}, 21, claim("b", 11, 20), ""},
		"an event is published twice":     {[]refill{{"a", 1, 10, 1}, {"b", 11, 20, 2}, {"a", 1, 10, 1}, {"a", 1, 10, 1}}, 21, claim("b", 11, 20), ""},
		"an older record was put back":    {[]refill{{"a", 1, 10, 1}, {"b", 11, 20, 2}}, 11, claim("a", 1, 10), "unclaimed 11-20: b claimed 11 to 20, end below 11"},
		"no record":                       {[]refill{{"a", 1, 10, 1}}, 0, nil, "unclaimed 1-10: a claimed 1 to 10, no record"},
		"partly above the end":            {[]refill{{"a", 1, 10, 1}}, 6, nil, "unclaimed 6-10: a claimed 1 to 10, end below 6"},
		"two generators":                  {[]refill{{"a", 1, 10, 1}, {"b", 6, 20, 2}}, 21, nil, "overlap 6-10: a claimed 1 to 10, message 1 of LEAF_EVENTS, b claimed 6 to 20, message 2 of LEAF_EVENTS"},
		"the same generator, other IDs":   {[]refill{{"a", 1, 10, 1}, {"a", 10, 20, 2}}, 21, nil, "overlap 10-10: a claimed 1 to 10, a claimed 10 to 20"},
		"the same claim, another event":   {[]refill{{"a", 1, 10, 1}, {"a", 1, 10, 2}}, 11, claim("a", 1, 10), "overlap 1-10: a claimed 1 to 10"},
		"the same IDs, another generator": {[]refill{{"a", 1, 10, 1}}, 11, claim("b", 1, 10), "overlap 1-10: b claimed 1 to 10, the tag's record, a claimed 1 to 10"},
		"the record, and an older event":  {[]refill{{"a", 1, 10, 1}, {"a", 11, 20, 2}}, 31, claim("b", 5, 6), "overlap 5-6: b claimed 5 to 6, the tag's record, a claimed 1 to 10"},
		"two lives of a name":             {[]refill{{"a", 1, 10, 1}, {"b", 1, 10, 3}}, 11, claim("b", 1, 10), "overlap 1-10: a claimed 1 to 10, b claimed 1 to 10"},
		"three":                           {[]refill{{"a", 1, 10, 1}, {"b", 5, 10, 2}, {"c", 8, 20, 3}}, 21, nil, "overlap 5-10: a claimed, b claimed; overlap 8-10: a claimed, c claimed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEvidence(t)
			for _, r := range c.events {
				e.refill("order", r.node, r.first, r.last, r.id)
			}
			e.claimed("order", c.end, c.last)
			for _, tags := range [][]string{{"order"}, nil, {"order", "order"}} {
				report := e.audit(nil, tags...)
				e.want(report.Contradictions, c.want)
				if len(report.Tags) != 1 {
					t.Errorf("%q are audited as %d tags", tags, len(report.Tags))
				}
			}
		})
	}
}

// want compares contradictions with their description.
func (e *evidence) want(found []Contradiction, want string) {
	e.t.Helper()
	var each []string
	if want != "" {
		each = strings.Split(want, "; ")
	}
	if len(found) != len(each) {
		e.t.Errorf("%d contradictions %+v, want %d", len(found), found, len(each))
		return
	}
	for i, text := range each {
		head, words, _ := strings.Cut(text, ": ")
		at := slices.IndexFunc(found, func(c Contradiction) bool {
			if c.Tag != "order" || fmt.Sprintf("%s %d-%d", c.Kind, c.First, c.Last) != head {
				return false
			}
			return !slices.ContainsFunc(strings.Split(words, ", "), func(word string) bool { return !strings.Contains(c.Message, word) })
		})
		if at < 0 {
			e.t.Errorf("contradiction %d is not among %+v: want %s", i, found, text)
		}
	}
}

// A contradiction is named among thousands of events, also if it contradicts all of them.
func TestContradictionAmongThousandsOfEvents(t *testing.T) {
	t.Parallel()
	const events = 3000
	for name, c := range map[string]struct {
		forger      string
		first, last int64
		end         int64
		found       int
		want        string // the first
	}{
		"all of them": {"forger", 1, 10 * events, 1 + 10*events, mostContradictions,
			"overlap 1-10: a claimed 1 to 10, forger claimed 1 to 30000"},
		"one of them": {"b", 15000, 15000, 1 + 10*events, 1,
			"overlap 15000-15000: a claimed 14991 to 15000, b claimed 15000 to 15000"},
		// The record was put back. What was claimed again since is named too.
		"the record": {"b", 1, 10, 11, 2, "unclaimed 11-30000: a claimed 29991 to 30000, 2998 other events, end below 11"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEvidence(t)
			for i := range events {
				e.refill("order", "a", int64(1+10*i), int64(10+10*i), i)
				if i < 20 { // published twice
					e.refill("order", "a", int64(1+10*i), int64(10+10*i), i)
				}
			}
			e.refill("order", c.forger, c.first, c.last, events)
			e.claimed("order", c.end, nil)
			report := e.audit(nil, "order")
			if len(report.Contradictions) != c.found || report.Tags[0].Events != events+1 {
				t.Fatalf("%d contradictions in %d events", len(report.Contradictions), report.Tags[0].Events)
			}
			e.want(report.Contradictions[:1], c.want)
		})
	}
}

// What is claimed after the record was read is no contradiction: the events were read before.
func TestClaimsDuringAnAudit(t *testing.T) {
	t.Parallel()
	e := newEvidence(t)
	e.refill("order", "a", 1, 10, 1)
	e.claimed("order", 11, nil)
	e.onRead = func() {
		e.refill("order", "a", 11, 20, 3)
		<-e.js.PublishAsyncComplete()
	}
	e.want(e.audit(nil, "order").Contradictions, "")
}

// A message that is no event is named if it is on a subject of refills. It ends no audit, and nor does a name that no
// tag can have.
func TestDamagedEvents(t *testing.T) {
	t.Parallel()
	e := newEvidence(t)
	good := wire.Encode(events.Refill{Node: "a", Tag: "order", First: 1, Last: 10})
	e.refill("order", "a", 1, 10, 1)
	for i, body := range []string{"", "garbage", "null", "{}", `{"node":"a","tag":"order","first":"5","last":"4"}`,
		`{"node":"a","tag":"order","first":"0","last":"4"}`, `{"node":"a","tag":"other","first":"1","last":"4"}`} {
		e.publish(eventMessage("info.segment.refill", "order", i, []byte(body)))
	}
	// A name that no generator has would be as wide in a table.
	e.refill("order", strings.Repeat("N", 100_000), 11, 20, 2)
	noTime := eventMessage("info.segment.refill", "order", 50, good)
	delete(noTime.Header, wire.HeaderTime)
	e.publish(noTime)
	for _, name := range []string{"ord!er", "ord$er", strings.Repeat("a", 200)} {
		e.publish(eventMessage("info.segment.refill", name, 60, wire.Encode(events.Refill{Node: "a", Tag: name, First: 1, Last: 10})))
	}
	e.publish(eventMessage("info.tag.updated", "shop.worker.a", 70, []byte("garbage"))) // no evidence
	e.publish(eventMessage("info.worker.acquired", "5", 70, wire.Encode(events.Worker{Node: "a", Worker: 6})))
	e.publish(eventMessage("info.worker.acquired", "5", 70, []byte("garbage")))
	e.publish(eventMessage("info.future.what", "order", 70, []byte("{}")))
	e.claimed("order", 11, nil)
	want := strings.TrimSuffix(strings.Repeat("damaged_event 0-0: order, message, of LEAF_EVENTS; ", 9), "; ")
	e.want(e.audit(nil, "order").Tags[0].Contradictions, want)
	whole := e.audit(nil)
	e.want(whole.Tags[0].Contradictions, want)
	if len(whole.Tags) != 1 || len(whole.Contradictions) != 9 {
		t.Errorf("%d tags and contradictions %+v", len(whole.Tags), whole.Contradictions)
	}
	if a := whole.Tags[0]; a.Events != 1 || a.Reported != 10 {
		t.Errorf("%+v", a)
	}
	for _, c := range whole.Contradictions {
		if len(c.Message) > 1000 {
			t.Errorf("a message of %d characters", len(c.Message))
		}
	}
	<-e.js.PublishAsyncComplete()
	if trails, found, err := readWorkerEvents(t.Context(), e.js, "*"); err != nil || len(trails) > 0 || len(found) != 2 {
		t.Errorf("worker events: %v, %+v, %v", trails, found, err)
	}
	for _, name := range []string{"", "*", ">", "a.>", "a b"} {
		if _, err := Run(t.Context(), e.source(), Options{Tags: []string{name}}); err == nil {
			t.Errorf("tag %q is audited", name)
		}
	}
}

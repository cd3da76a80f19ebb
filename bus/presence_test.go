package bus

import (
	"testing"
	"time"
)

func TestPresence(t *testing.T) {
	p := newPresence("me")
	start := time.Unix(1_700_000_000, 0)
	hear := func(after time.Duration, b beat) bool { return p.hear(start.Add(after), encode(b)) }
	nodes := func(after time.Duration) (list string) {
		for _, b := range p.present(start.Add(after)) {
			list += b.Node
		}
		return list
	}

	hear(0, beat{Node: "m", ID: "me", Segment: true})
	if got := nodes(0); got != "" || p.segmentElsewhere(start, time.Time{}) {
		t.Errorf("the own beat counts for another generator: %q", got)
	}
	if !hear(0, beat{Node: "b", ID: "2"}) || hear(0, beat{Node: "b", ID: "2"}) {
		t.Error("a generator is new once")
	}
	if p.segmentElsewhere(start, time.Time{}) {
		t.Error("one that cannot serve counts as able to")
	}
	hear(time.Second, beat{Node: "a", ID: "1", Segment: true})
	if got := nodes(time.Second); got != "ab" || !p.segmentElsewhere(start.Add(time.Second), start) {
		t.Errorf("present: %q", got)
	}
	if p.segmentElsewhere(start.Add(time.Second), start.Add(time.Second)) {
		t.Error("what was said before counts")
	}
	if p.segmentElsewhere(start.Add(4*time.Second), start) {
		t.Error("one that was not heard of for three seconds counts")
	}
	if got := nodes(3 * time.Second); got != "a" {
		t.Errorf("after three seconds without a beat of b: %q", got)
	}
	hear(3*time.Second, beat{Node: "a", ID: "1", Gone: true})
	if got := nodes(3 * time.Second); got != "" {
		t.Errorf("after the last word of a: %q", got)
	}
	// The same node, started again, is another generator.
	hear(4*time.Second, beat{Node: "b", ID: "3"})
	hear(4*time.Second, beat{Node: "b", ID: "4"})
	if got := nodes(4 * time.Second); got != "bb" {
		t.Errorf("two runs of b: %q", got)
	}
	// Those that were killed are not kept for ever.
	hear(time.Minute, beat{Node: "c", ID: "5"})
	if len(p.others) != 1 {
		t.Errorf("kept: %v", p.others)
	}
	for _, junk := range []string{"", "null", "{", `{"node":"x"}`, "[]"} {
		if p.hear(start, []byte(junk)) {
			t.Errorf("%q counts for a generator", junk)
		}
	}
}

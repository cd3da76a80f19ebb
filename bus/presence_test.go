package bus

import (
	"slices"
	"testing"
	"time"
)

func TestPresence(t *testing.T) {
	p := newPresence("me")
	start := time.Unix(1_700_000_000, 0)
	segment := func(b beat) bool { return b.Segment }
	hear := func(after time.Duration, b beat) bool { return p.hear(start.Add(after), encode(b)) }
	nodes := func(after time.Duration) (list string) {
		for _, b := range p.present(start.Add(after)) {
			list += b.Node
		}
		return list
	}

	hear(0, beat{Node: "m", ID: "me", Segment: true})
	if got := nodes(0); got != "" || p.elsewhere(start, time.Time{}, segment) {
		t.Errorf("the own beat counts for another generator: %q", got)
	}
	if !hear(0, beat{Node: "b", ID: "2"}) || hear(0, beat{Node: "b", ID: "2"}) {
		t.Error("a generator is new once")
	}
	if p.elsewhere(start, time.Time{}, segment) {
		t.Error("one that cannot serve counts as able to")
	}
	hear(time.Second, beat{Node: "a", ID: "1", Segment: true})
	if got := nodes(time.Second); got != "ab" || !p.elsewhere(start.Add(time.Second), start, segment) {
		t.Errorf("present: %q", got)
	}
	if p.elsewhere(start.Add(time.Second), start.Add(time.Second), segment) {
		t.Error("what was said before counts")
	}
	if p.elsewhere(start.Add(4*time.Second), start, segment) {
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

// Whoever says that it holds a worker keeps the others from it for a while.
func TestPresenceClaims(t *testing.T) {
	p := newPresence("me")
	start := time.Unix(1_700_000_000, 0)
	p.hear(start, encode(beat{Node: "m", ID: "me", Workers: []int64{7}}))
	p.hear(start, encode(beat{Node: "a", ID: "1", Workers: []int64{0, 3}}))
	p.hear(start, encode(beat{Node: "b", ID: "2"})) // has none
	for worker, want := range map[int64]bool{-1: false, 0: true, 1: false, 3: true, 7: false} {
		if got := p.claimed(start, worker, beatExpires); got != want {
			t.Errorf("worker %d is claimed: %v, want %v", worker, got, want)
		}
	}
	later := start.Add(beatExpires)
	if p.claimed(later, 0, beatExpires) || !p.claimed(later, 0, claimExpires) {
		t.Error("a claim counts for as long as is asked")
	}
}

// A worker that was lost is kept from the others for a while.
func TestLostWorkersAreClaimed(t *testing.T) {
	var c claims
	start := time.Unix(1_700_000_000, 0)
	if got := c.workers(start, -1); len(got) > 0 {
		t.Errorf("one that has none claims %v", got)
	}
	c.lost(start, 5)
	for _, want := range []struct {
		after   time.Duration
		held    int64
		workers []int64
	}{
		{0, -1, []int64{5}},
		{0, 7, []int64{7, 5}},
		{0, 5, []int64{5}}, // it has it again
		{claimExpires, 7, []int64{7, 5}},
		{claimExpires + 1, 7, []int64{7}},
	} {
		if got := c.workers(start.Add(want.after), want.held); !slices.Equal(got, want.workers) {
			t.Errorf("after %v with worker %d: %v, want %v", want.after, want.held, got, want.workers)
		}
	}
}

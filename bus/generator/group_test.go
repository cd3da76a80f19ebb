package generator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/wire"
)

// A peer of another installation counts until this generator knows its own.
func TestPresenceOfAnotherInstallation(t *testing.T) {
	t.Parallel()
	g, now := newGroup("me"), time.Now()
	hear := func() bool {
		_, isNew := g.hear(now, 0, wire.Encode(heartbeat{Node: "a", ID: "1", Identity: Identity{Installation: "other"}}))
		return isNew
	}
	if !hear() || len(g.present(now)) != 1 {
		t.Error("before it has joined it does not count")
	}
	if g.join("own"); len(g.present(now)) != 0 {
		t.Error("afterwards it counts")
	}
	if hear() || len(g.present(now)) != 0 { // both would answer each other for ever
		t.Error("it is new with each heartbeat")
	}
}

func TestPresence(t *testing.T) {
	t.Parallel()
	p := newGroup("me")
	start := time.Unix(1_700_000_000, 0)
	segment := func(b heartbeat) bool { return b.Segment }
	hear := func(after time.Duration, b heartbeat) bool {
		_, isNew := p.hear(start.Add(after), 0, wire.Encode(b))
		return isNew
	}
	nodes := func(after time.Duration) (list string) {
		for _, b := range p.present(start.Add(after)) {
			list += b.Node
		}
		return list
	}

	hear(0, heartbeat{Node: "m", ID: "me", Segment: true})
	if got := nodes(0); got != "" || p.anyPeer(start, time.Time{}, segment) {
		t.Errorf("the own heartbeat counts for another generator: %q", got)
	}
	if !hear(0, heartbeat{Node: "b", ID: "2"}) || hear(0, heartbeat{Node: "b", ID: "2"}) {
		t.Error("a generator is new once")
	}
	hear(time.Second, heartbeat{Node: "a", ID: "1", Segment: true})
	if got := nodes(time.Second); got != "ab" || !p.anyPeer(start.Add(time.Second), start, segment) {
		t.Errorf("present: %q", got)
	}
	if p.anyPeer(start.Add(time.Second), start.Add(time.Second), segment) {
		t.Error("what was said before counts")
	}
	if p.anyPeer(start.Add(4*time.Second), start, segment) {
		t.Error("one that was not heard of for three seconds counts")
	}
	if got := nodes(3 * time.Second); got != "a" {
		t.Errorf("after three seconds without a heartbeat of b: %q", got)
	}
	hear(3*time.Second, heartbeat{Node: "a", ID: "1", Gone: true})
	if got := nodes(3 * time.Second); got != "" {
		t.Errorf("after the last word of a: %q", got)
	}
	// The same node, started again, is another generator.
	hear(4*time.Second, heartbeat{Node: "b", ID: "3"})
	hear(4*time.Second, heartbeat{Node: "b", ID: "4"})
	if got := nodes(4 * time.Second); got != "bb" {
		t.Errorf("two runs of b: %q", got)
	}
	for _, junk := range []string{"", "null", "{", `{"node":"x"}`, "[]"} {
		if _, isNew := p.hear(start, 0, []byte(junk)); isNew {
			t.Errorf("%q counts for a generator", junk)
		}
	}
}

// No generator takes a worker for a while after a peer has claimed it. It counts as held only
// while the peer is present.
func TestPresenceClaims(t *testing.T) {
	t.Parallel()
	p := newGroup("me")
	start := time.Unix(1_700_000_000, 0)
	hear := func(after time.Duration, b heartbeat) { p.hear(start.Add(after), 0, wire.Encode(b)) }
	zero, one, seven := int64(0), int64(1), int64(7)
	hear(0, heartbeat{Node: "m", ID: "me", Worker: &seven})
	hear(0, heartbeat{Node: "a", ID: "1", Worker: &zero, Lost: []int64{3}})
	hear(0, heartbeat{Node: "c", ID: "3", Worker: &one})
	hear(0, heartbeat{Node: "b", ID: "2"}) // has none
	want := func(after time.Duration, claimed, held map[int64]bool) {
		t.Helper()
		for _, worker := range []int64{-1, zero, one, 3, seven} {
			if got := p.claimed(start.Add(after), worker); got != claimed[worker] {
				t.Errorf("after %v worker %d is claimed: %v, want %v", after, worker, got, claimed[worker])
			}
			if got := p.held(start.Add(after), worker); got != held[worker] {
				t.Errorf("after %v worker %d is held: %v, want %v", after, worker, got, held[worker])
			}
		}
	}
	type set = map[int64]bool
	want(0, set{zero: true, one: true, 3: true}, set{zero: true, one: true})
	hear(time.Second, heartbeat{Node: "a", ID: "1", Lost: []int64{3, zero}})
	want(time.Second, set{zero: true, one: true, 3: true}, set{one: true})
	hear(time.Second, heartbeat{Node: "c", ID: "3", Gone: true}) // in order
	want(time.Second, set{zero: true, 3: true}, set{})
	want(claimExpires, set{zero: true, 3: true}, set{})
	want(claimExpires+time.Second, set{}, set{})
}

// The worker of a generator that has ended can be taken at once, unless it had lost the worker.
func TestPresenceClaimsOfADrain(t *testing.T) {
	t.Parallel()
	p := newGroup("me")
	start := time.Unix(1_700_000_000, 0)
	seven := int64(7)
	for i, c := range []struct {
		beat    heartbeat
		claimed bool
	}{
		{heartbeat{Worker: &seven}, true},
		{heartbeat{Gone: true}, false},
		{heartbeat{Worker: &seven}, true},
		{heartbeat{Lost: []int64{seven}}, true},
		{heartbeat{Gone: true, Lost: []int64{seven}}, true},
	} {
		c.beat.Node, c.beat.ID = "a", "1"
		p.hear(start.Add(time.Duration(i)*time.Second), 0, wire.Encode(c.beat))
		if got := p.claimed(start.Add(time.Duration(i)*time.Second), seven); got != c.claimed {
			t.Errorf("after heartbeat %d the worker is claimed: %v", i, got)
		}
	}
}

// A lost peer is named for an hour, or until its next heartbeat.
func TestPresenceUnheard(t *testing.T) {
	t.Parallel()
	p := newGroup("me")
	start := time.Unix(1_700_000_000, 0)
	hear := func(after time.Duration, b heartbeat) { p.hear(start.Add(after), 0, wire.Encode(b)) }
	want := func(after time.Duration, want ...string) {
		t.Helper()
		if _, got := p.members(start.Add(after)); !slices.Equal(got, want) {
			t.Errorf("after %v not heard are %v, want %v", after, got, want)
		}
	}
	hear(0, heartbeat{Node: "m", ID: "me"})
	for _, node := range []string{"a", "b", "c", "d"} {
		hear(0, heartbeat{Node: node, ID: node})
	}
	want(2 * time.Second)
	hear(2*time.Second, heartbeat{Node: "a", ID: "a", Gone: true})
	hear(2*time.Second, heartbeat{Node: "d", ID: "d2"}) // killed and started again
	want(3*time.Second, "b", "c")
	hear(4*time.Second, heartbeat{Node: "b", ID: "b"})
	want(4*time.Second, "c")
	hear(4*time.Second, heartbeat{Node: "c", ID: "c2"})
	want(4 * time.Second)
	want(5*time.Second, "d")
	want(20*time.Second, "b", "c", "d")
	want(time.Hour+3*time.Second, "b", "c")
	want(2 * time.Hour)
	for i := range 2 * maxLost {
		hear(2*time.Hour+time.Duration(i), heartbeat{Node: fmt.Sprintf("%03d", i), ID: fmt.Sprint(i)})
	}
	if _, got := p.members(start.Add(2*time.Hour + time.Minute)); len(got) != maxLost || got[0] != fmt.Sprintf("%03d", maxLost) {
		t.Errorf("%d are named, from %s on", len(got), got[0])
	}
}

// Two peers or more that are all silent at once are a sign that a link between NATS servers is cut.
func TestAllSilent(t *testing.T) {
	t.Parallel()
	g := newGroup("me")
	start := time.Unix(1_700_000_000, 0)
	for i, c := range []struct {
		peer   string
		at     time.Duration
		silent bool // 2.5 s after the first heartbeat
	}{{"a", 0, false}, {"b", 0, true}, {"c", time.Second, false}} {
		g.hear(start.Add(c.at), 0, wire.Encode(heartbeat{Node: c.peer, ID: c.peer}))
		if got := g.allSilent(start.Add(2500 * ms)); got != c.silent {
			t.Errorf("with %d peers: %v", i+1, got)
		}
	}
}

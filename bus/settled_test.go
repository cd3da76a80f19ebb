package bus

import (
	"testing"
	"time"
)

// As long as a generator is cut off, and for a while after it, it does not know
// what the others hold.
func TestSettled(t *testing.T) {
	g := &Generator{presence: newPresence("me")}
	g.identity.Store(&Identity{})
	now := time.Unix(1_700_000_000, 0)
	want := func(after time.Duration, want bool) {
		t.Helper()
		if got := g.settled(now.Add(after)); got != want {
			t.Errorf("after %v: settled %v, want %v", after, got, want)
		}
	}
	want(0, true)
	g.isolation.begin()
	want(time.Hour, false)
	g.isolation.end(now)
	want(0, false)
	want(beatExpires-1, false)
	want(beatExpires, true)

	// Before it has joined: beside generators of another installation it will be refused.
	g.identity.Store(nil)
	g.cfg.Installation = "own"
	later := now.Add(time.Hour)
	g.presence.hear(later, encode(beat{Node: "a", ID: "1", Identity: Identity{Installation: "own"}}))
	want(time.Hour, true)
	g.presence.hear(later, encode(beat{Node: "b", ID: "2", Identity: Identity{Installation: "other"}}))
	want(time.Hour, false)
}

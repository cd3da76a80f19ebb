package generator

import (
	"fmt"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/wire"
)

const ms = time.Millisecond

// Only silence counts during which this generator heard NATS without a pause.
func TestLostNotByADeafGenerator(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct{ steady, lost time.Duration }{ // since the last heartbeat of the peer
		"no pause":                            {-time.Hour, lostAfter},
		"a pause before":                      {-time.Second, lostAfter},
		"a pause that ended with the silence": {0, lostAfter},
		"a pause later":                       {3 * time.Second, 3*time.Second + lostAfter},
		"a long pause":                        {time.Minute, time.Minute + lostAfter},
	} {
		g := newGroup("me")
		g.hear(start, 0, wire.Encode(heartbeat{Node: "a", ID: "1"}))
		for after := max(c.steady, 0); ; after += 100 * ms {
			if len(g.declare(start.Add(after), start.Add(c.steady), "own")) > 0 {
				if after != c.lost {
					t.Errorf("%s: lost after %v, want %v", name, after, c.lost)
				}
				break
			}
		}
	}
}

// The alert of an episode and its end have one message ID each for all that heard the last heartbeat. A generator that
// was cut off, or is new, shows the loss too, and publishes no second alert, however late it comes.
func TestOneAlertOfALoss(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	seven := int64(7)
	var now time.Time
	published := map[string]int{}
	groups := map[string]*group{}
	hear := func(who string, b heartbeat) {
		b.UnixMS, b.ReservedUntil = now.UnixMilli(), now.Add(time.Hour).UnixMilli()
		groups[who].hear(now, now.UnixMilli(), wire.Encode(b))
	}
	publish := func(who string) {
		g := groups[who]
		g.declare(now, start, "own")
		for {
			p, end, ok := g.next(now, true)
			if !ok {
				return
			}
			published[fmt.Sprintf("%s %s%d%v", who, p.ID, p.Number, end)]++
			g.published(p, end)
		}
	}
	learn := func(who, from string, begins bool) {
		var nodes []lostNode
		_, lost := groups[from].lost(now)
		for _, p := range lost {
			nodes = append(nodes, p.lostNode(now))
		}
		steady := start
		if begins {
			steady = now
		}
		groups[who].learn(now, steady, heartbeat{LostNodes: nodes}, "own")
	}
	want := func(step string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if published[id] != 1 {
				t.Errorf("%s: %s is published %d times", step, id, published[id])
			}
		}
		if len(published) != len(ids) {
			t.Errorf("%s: published are %v", step, published)
		}
		clear(published)
	}
	shown := func(who string, want int) {
		t.Helper()
		until := start.Add(time.Hour + 2*time.Second).UnixMilli()
		if n, latest := groups[who].lost(now); n != want || n > 0 && latest[0].until().UnixMilli() != until {
			t.Errorf("%s shows %+v", who, latest)
		}
	}
	for _, who := range []string{"a", "b", "cut", "new"} {
		groups[who] = newGroup(who)
	}
	for n := range uint64(3) {
		now = start.Add(time.Duration(n) * time.Second)
		for who := range groups {
			if who != "new" && (who != "cut" || n < 2) {
				hear(who, heartbeat{Node: "x", ID: "r", Number: n, Worker: &seven})
			}
		}
	}
	now = now.Add(lostAfter)
	publish("a")
	publish("b")
	want("a loss", "a r2false", "b r2false")
	now = now.Add(10 * time.Minute)
	learn("new", "a", false)
	shown("new", 0) // it would know
	learn("new", "a", true)
	learn("cut", "a", true)
	publish("new")
	publish("cut")
	want("it was published without them")
	shown("new", 1)
	shown("cut", 1)
	for who := range groups {
		hear(who, heartbeat{Node: "x", ID: "r", Number: 9, Worker: &seven})
		publish(who)
		shown(who, 0)
	}
	want("the end", "a r2true", "b r2true", "cut r2true", "new r2true")
	now = now.Add(lostAfter)
	publish("a")
	want("lost again", "a r9false")
	now = now.Add(time.Second)
	groups["a"].forget(now, "x")
	publish("a")
	publish("a")
	shown("a", 0)
	want("an operator says that it is gone", "a r9true")
	publish("b")
	learn("b", "a", true)
	want("one that tries late", "b r9false")
	now = now.Add(2 * time.Hour)
	publish("b")
	want("what it reserved is over", "b r9true")
}

// The attempt whose answer is lost may have succeeded: the end is published too.
func TestLossTriedHasAnEnd(t *testing.T) {
	t.Parallel()
	now, g := time.Unix(1_700_000_000, 0), newGroup("me")
	g.hear(now, 0, wire.Encode(heartbeat{Node: "x", ID: "r"}))
	now = now.Add(lostAfter)
	g.declare(now, now.Add(-lostAfter), "own")
	if _, end, ok := g.next(now, false); ok || end {
		t.Error("a generator that does not hear NATS publishes an alert")
	}
	if _, end, ok := g.next(now, true); !ok || end {
		t.Error("no alert")
	}
	g.hear(now, 0, wire.Encode(heartbeat{Node: "x", ID: "r"}))
	if _, end, ok := g.next(now, true); !ok || !end {
		t.Error("no end")
	}
}

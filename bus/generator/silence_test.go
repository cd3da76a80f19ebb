package generator

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// reconnectsOf looks every so often while heartbeats are overdue, and returns after how long it reconnects.
func reconnectsOf(d *deafness, every, most time.Duration) (after []time.Duration) {
	start := time.Unix(1_700_000_000, 0)
	d.look(start, false, true)
	for passed := every; passed <= most; passed += every {
		if d.look(start.Add(passed), true, true) {
			after = append(after, passed)
		}
	}
	return after
}

func TestDeafnessReconnectsAgainAndAgain(t *testing.T) {
	t.Parallel()
	const s = time.Second
	got := reconnectsOf(new(deafness), 100*time.Millisecond, 200*s)
	want := []time.Duration{2500 * time.Millisecond, 7500 * time.Millisecond, 17500 * time.Millisecond, 37500 * time.Millisecond,
		77500 * time.Millisecond, 137500 * time.Millisecond, 197500 * time.Millisecond}
	if !slices.Equal(got, want) {
		t.Errorf("it reconnects after %v, want %v", got, want)
	}
}

// While a reconnect is under way, the generator is not connected. That does not make it reconnect more often.
func TestDeafnessOfSlowReconnects(t *testing.T) {
	t.Parallel()
	var d deafness
	start, back, n := time.Unix(1_700_000_000, 0), time.Duration(0), 0
	d.look(start, false, true)
	for passed := lookEvery; passed <= 200*time.Second; passed += lookEvery {
		if d.look(start.Add(passed), true, passed >= back) {
			back = passed + 1500*time.Millisecond
			n++
		}
	}
	if n != 7 {
		t.Errorf("it reconnects %d times in 200 s, want 7", n)
	}
}

// A heartbeat that comes back ends the deafness.
func TestDeafnessEnds(t *testing.T) {
	t.Parallel()
	d := new(deafness)
	reconnectsOf(d, lookEvery, time.Minute)
	if got := reconnectsOf(d, lookEvery, 3*time.Second); len(got) != 1 || got[0] != 2600*time.Millisecond {
		t.Errorf("it reconnects after %v", got)
	}
}

// A process that stood still, or hardly runs, cannot know whether its heartbeats would come back.
func TestDeafnessOfAProcessThatStoodStill(t *testing.T) {
	t.Parallel()
	if got := reconnectsOf(new(deafness), 1100*time.Millisecond, time.Hour); len(got) != 0 {
		t.Errorf("it reconnects after %v", got)
	}
}

// What comes after a standstill on the same connection is old. What another connection delivers is new.
func TestOldDelivery(t *testing.T) {
	t.Parallel()
	for name, reconnected := range map[string]bool{"the same connection": false, "another connection": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := new(delivery)
			d.old.Store(true)
			if reconnected {
				d.connection.Store(1) // not the present one
			}
			g := &Generator{cfg: Config{Conn: new(nats.Conn)}, group: newGroup("x")}
			if got := g.isOld(d, time.Now()); got == reconnected {
				t.Errorf("old: %v", got)
			}
		})
	}
}

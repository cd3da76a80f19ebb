package generator

import (
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

const ms = time.Millisecond

// Only time counts in which this generator heard NATS without a pause.
func TestLostNotByADeafGenerator(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		from, to time.Duration // of the pause
		alert    time.Duration // when peer a, silent since 10 s, is lost
	}{
		"no pause":                            {0, 0, 15 * time.Second},
		"a short pause":                       {13 * time.Second, 14 * time.Second, 15 * time.Second},
		"a pause of some time":                {12 * time.Second, 20 * time.Second, 25 * time.Second},
		"a long pause":                        {12 * time.Second, 100 * time.Second, 105 * time.Second},
		"a pause that began with the silence": {10 * time.Second, 30 * time.Second, 35 * time.Second},
	} {
		g := newGroup("me")
		g.hear(start.Add(10*time.Second), 0, wire.Encode(heartbeat{Node: "a", ID: "1"}))
		for after := 5 * time.Second; after < 120*time.Second; after += 100 * ms {
			now := start.Add(after)
			if after%time.Second == 0 && (after <= c.from || after >= c.to) { // an own heartbeat comes back at once
				g.pulse.came(now, g.pulse.send(now))
			}
			_, begin, _ := g.judge(now, "own")
			if lost := after >= c.alert; lost != (len(begin) > 0) {
				t.Errorf("%s: after %v lost: %+v", name, after, begin)
				break
			}
		}
	}
}

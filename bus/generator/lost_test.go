package generator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

const ms = time.Millisecond

// losing is a group whose time is that after a start. Its own heartbeats come back, unless a test leaves them out.
type losing struct {
	*group
	t     *testing.T
	start time.Time
}

func newLosing(t *testing.T) *losing {
	return &losing{newGroup("me"), t, time.Unix(1_700_000_000, 0)}
}

func (l *losing) at(after time.Duration) time.Time { return l.start.Add(after) }

func (l *losing) heard(after time.Duration, b heartbeat) {
	l.t.Helper()
	l.hear(l.at(after), l.at(after).UnixMilli(), wire.Encode(b))
}

// beat sends own heartbeats that come back at once, each second from one time to another.
func (l *losing) beat(from, to time.Duration) {
	for after := from; after <= to; after += time.Second {
		l.pulse.came(l.at(after), l.pulse.send(l.at(after)))
	}
}

func names(list []lostPeer) string {
	var all []string
	for _, l := range list {
		all = append(all, l.node+"/"+l.run)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// want judges, and checks whose alerts begin and end.
func (l *losing) want(after time.Duration, begin, end string) {
	l.t.Helper()
	_, b, e := l.judge(l.at(after), "own")
	if names(b) != begin || names(e) != end {
		l.t.Errorf("after %v alerts begin: %q, want %q; end: %q, want %q", after, names(b), begin, names(e), end)
	}
}

// published does what a generator does with all alerts and ends that are due.
func (l *losing) published(after time.Duration) {
	_, begin, end := l.judge(l.at(after), "own")
	for _, b := range begin {
		if l.trying(l.at(after), b) {
			l.stored(b)
		}
	}
	for _, e := range end {
		l.ended(e)
	}
}

// A peer that falls silent is lost after five heartbeats, until it is heard again. One that said goodbye is not.
func TestLost(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	l.beat(0, 60*time.Second)
	for _, node := range []string{"a", "b", "own"} { // own: another run under the name of this generator
		l.heard(50*time.Second, heartbeat{Node: node, ID: node + "1"})
	}
	l.heard(51*time.Second, heartbeat{Node: "b", ID: "b1", Gone: true})
	l.want(54999*ms, "", "")
	l.want(55*time.Second, "a/a1", "")
	l.want(56*time.Second, "a/a1", "") // not published yet
	l.published(56 * time.Second)
	l.want(57*time.Second, "", "")
	l.heard(58*time.Second, heartbeat{Node: "a", ID: "a2"}) // started again
	l.want(58*time.Second, "", "a/a1")
	l.published(58 * time.Second)
	l.want(59*time.Second, "", "")
	if len(l.lost) != 1 || l.lost["own"] == nil { // known to be silent, but this node runs
		t.Errorf("kept: %v", l.lost)
	}
}

// Only time counts in which this generator heard NATS without a pause.
func TestLostNotByADeafGenerator(t *testing.T) {
	t.Parallel()
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
		l := newLosing(t)
		l.heard(10*time.Second, heartbeat{Node: "a", ID: "1"})
		for after := 5 * time.Second; after < 120*time.Second; after += 100 * ms {
			if after%time.Second == 0 && (after <= c.from || after >= c.to) {
				l.beat(after, after)
			}
			_, begin, _ := l.judge(l.at(after), "own")
			if lost := after >= c.alert; lost != (len(begin) > 0) {
				t.Errorf("%s: after %v lost: %v", name, after, names(begin))
				break
			}
		}
	}
}

// A frozen generator is woken, and reads its timers before the heartbeats that wait.
func TestLostNotByAFrozenGenerator(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	l.beat(0, 10*time.Second)
	l.heard(10*time.Second, heartbeat{Node: "a", ID: "1"})
	thawed := 600 * time.Second
	l.want(thawed, "", "")
	number := l.pulse.send(l.at(thawed))
	l.want(thawed+ms, "", "")
	// announce may note a heartbeat before the queue with those of the peers was read
	l.pulse.came(l.at(thawed+2*ms), number)
	l.want(thawed+3*ms, "", "")
	l.heard(thawed+4*ms, heartbeat{Node: "a", ID: "1"})
	l.beat(thawed+time.Second, thawed+4*time.Second)
	l.want(thawed+4*time.Second, "", "")
}

package generator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

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

// shown checks which peers operators see as lost.
func (l *losing) shown(after time.Duration, want string) {
	l.t.Helper()
	_, list := l.lostNodes(l.at(after))
	var nodes []string
	for _, n := range list {
		nodes = append(nodes, fmt.Sprintf("%s %v", n.Node, time.Duration(n.SilentMS)*time.Millisecond))
	}
	if got := strings.Join(nodes, ", "); got != want {
		l.t.Errorf("after %v lost are %q, want %q", after, got, want)
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
	l.shown(54999*ms, "")
	l.want(55*time.Second, "a/a1", "")
	l.want(56*time.Second, "a/a1", "") // not published yet
	l.published(56 * time.Second)
	l.want(57*time.Second, "", "")
	l.shown(57*time.Second, "a 7s")
	l.heard(58*time.Second, heartbeat{Node: "a", ID: "a2"}) // started again
	l.shown(58*time.Second, "")
	l.want(58*time.Second, "", "a/a1")
	l.published(58 * time.Second)
	l.want(59*time.Second, "", "")
	if len(l.lost) != 1 || l.lost["own"] == nil { // known to be silent, but this node runs
		t.Errorf("kept: %v", l.lost)
	}
}

// The same run is lost again: another alert. And a goodbye ends the first.
func TestLostTwice(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	l.beat(0, 60*time.Second)
	l.heard(0, heartbeat{Node: "a", ID: "1"})
	l.published(5 * time.Second)
	l.heard(6*time.Second, heartbeat{Node: "a", ID: "1"})
	l.want(11*time.Second, "a/1", "") // the end was not published: the stream says whether it needs an alert
	l.published(11 * time.Second)
	l.want(11*time.Second, "", "")
	l.heard(12*time.Second, heartbeat{Node: "a", ID: "1", Gone: true})
	l.want(12*time.Second, "", "a/1")
	l.published(12 * time.Second)
	if len(l.lost) > 0 {
		t.Errorf("kept: %v", l.lost)
	}
}

// A peer that returns before its alert was tried needs none, and no end.
func TestLostAndBackBeforeTheStream(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	l.beat(0, 60*time.Second)
	l.heard(0, heartbeat{Node: "a", ID: "1"})
	_, begin, _ := l.judge(l.at(40*time.Second), "own")
	l.heard(40*time.Second, heartbeat{Node: "a", ID: "1"})
	if len(begin) != 1 || l.trying(l.at(40*time.Second), begin[0]) {
		t.Errorf("an alert that is not true any more is published: %v", begin)
	}
	l.want(41*time.Second, "", "")
	if len(l.lost) > 0 {
		t.Errorf("kept: %v", l.lost)
	}
	// It returns while the alert is on its way.
	l.want(50*time.Second, "a/1", "")
	_, begin, _ = l.judge(l.at(50*time.Second), "own")
	l.trying(l.at(50*time.Second), begin[0])
	l.heard(51*time.Second, heartbeat{Node: "a", ID: "1"})
	l.want(51*time.Second, "", "a/1")
	if l.trying(l.at(51*time.Second), begin[0]) {
		t.Error("it is tried again after the return")
	}
	l.group.stored(begin[0])
	l.want(51*time.Second, "", "a/1")
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
	l.shown(thawed+4*time.Second, "")
}

// An alert is over when what the peer reserved is over. The peer's clock may be wrong.
func TestLostEnds(t *testing.T) {
	t.Parallel()
	const far = int64(5_000_000_000_000) // a clock that is decades ahead
	worker := new(int64(7))
	for name, c := range map[string]struct {
		beat heartbeat
		over time.Duration // after its last heartbeat
	}{
		"without a worker":           {heartbeat{}, lostFor},
		"of an older version":        {heartbeat{Worker: worker, UnixMS: far}, lostFor},
		"with a worker":              {heartbeat{Worker: worker, UnixMS: far, ReservedUntil: far + 24*3_600_000}, 24 * time.Hour},
		"with a short reservation":   {heartbeat{Worker: worker, UnixMS: far, ReservedUntil: far + 60_000}, time.Minute},
		"whose reservation was over": {heartbeat{Worker: worker, UnixMS: far, ReservedUntil: 1}, 0},
	} {
		l := newLosing(t)
		l.beat(0, 5*time.Second)
		c.beat.Node, c.beat.ID = "a", "1"
		l.heard(0, c.beat)
		l.published(5 * time.Second)
		if c.over == 0 {
			l.want(5*time.Second, "", "")
			l.shown(5*time.Second, "")
			continue
		}
		l.want(c.over-1, "", "")
		l.shown(c.over-time.Millisecond, "a "+(c.over-time.Millisecond).String())
		l.want(c.over, "", "a/1")
		l.shown(c.over, "")
		l.published(c.over)
		l.want(c.over, "", "")
		if _, unheard := l.members(l.at(c.over)); len(unheard) > 0 != (c.over < lostFor) {
			t.Errorf("%s: not heard are %v", name, unheard)
		}
		l.beat(lostFor, lostFor)
		l.want(max(c.over, lostFor), "", "")
		if len(l.lost) > 0 {
			t.Errorf("%s: kept: %v", name, l.lost)
		}
	}
	l := newLosing(t) // no time overflows
	l.heard(0, heartbeat{Node: "a", ID: "1", Worker: worker, UnixMS: -1 << 62, ReservedUntil: 1 << 62})
	l.beat(0, 5*time.Second)
	l.want(5*time.Second, "a/1", "")
}

// An operator has released the worker of a lost peer.
func TestLostAndReleased(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	l.beat(0, 20*time.Second)
	l.heard(0, heartbeat{Node: "a", ID: "1", UnixMS: 1, Worker: new(int64(7)), ReservedUntil: 1 + 24*3_600_000})
	l.heard(0, heartbeat{Node: "b", ID: "2", UnixMS: 1, Worker: new(int64(8)), ReservedUntil: 1 + 24*3_600_000})
	l.published(5 * time.Second)
	l.shown(5*time.Second, "a 5s, b 5s")
	l.released(l.at(12*time.Second), 7)
	l.want(12*time.Second, "", "a/1")
	l.shown(12*time.Second, "b 12s")
}

// A node with two runs is lost when both are silent, and then the one that was heard last counts.
func TestLostOfTwoRuns(t *testing.T) {
	t.Parallel()
	for range 20 { // maps are read in any order
		l := newLosing(t)
		l.beat(0, 30*time.Second)
		l.heard(time.Second, heartbeat{Node: "a", ID: "1"})
		l.heard(time.Second, heartbeat{Node: "a", ID: "3"})
		l.heard(time.Second, heartbeat{Node: "a", ID: "2"})
		l.heard(5*time.Second, heartbeat{Node: "a", ID: "2"})
		l.want(7*time.Second, "", "")
		l.want(10*time.Second, "a/2", "")
		l.published(10 * time.Second)
		l.heard(11*time.Second, heartbeat{Node: "renamed", ID: "4"})
		l.want(11*time.Second, "", "")
		l.heard(12*time.Second, heartbeat{Node: "a", ID: "1"})
		l.want(12*time.Second, "", "a/2")
		same := newLosing(t)
		same.beat(0, 5*time.Second)
		for _, run := range []string{"1", "3", "2"} {
			same.heard(0, heartbeat{Node: "a", ID: run})
		}
		same.want(5*time.Second, "a/3", "") // every peer chooses the same one
	}
}

// What is remembered has a bound, and an alert that was published is not forgotten before its end.
func TestLostIsBounded(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	l.beat(0, 100*time.Second)
	hear := func(after time.Duration, n int, kind string) {
		for i := range n {
			l.heard(after, heartbeat{Node: fmt.Sprintf("%s%03d", kind, i), ID: fmt.Sprintf("%s%03d", kind, i)})
		}
	}
	hear(0, maxLost, "a")
	l.published(5 * time.Second)
	if n, latest := l.lostNodes(l.at(5 * time.Second)); n != maxLost || len(latest) != maxLostShown {
		t.Errorf("%d are lost, and %d shown", n, len(latest))
	}
	hear(6*time.Second, 2*maxLost, "b")
	l.want(20*time.Second, "", "")
	if len(l.lost) != maxLost || l.lost["a000"] == nil {
		t.Errorf("%d are kept", len(l.lost))
	}
	hear(21*time.Second, maxLost, "a")
	if _, _, end := l.judge(l.at(21*time.Second), "own"); len(end) != maxLost {
		t.Errorf("%d alerts end", len(end))
	}
}

// A generator that starts takes in what the stream has, and ends it when the time comes.
func TestRecallLost(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	l.beat(0, 20*time.Second)
	l.heard(0, heartbeat{Node: "here", ID: "h"})
	l.heard(0, heartbeat{Node: "silent", ID: "s"})
	l.beat(3*time.Second, 4*time.Second)
	l.heard(3*time.Second, heartbeat{Node: "here", ID: "h"})
	l.present(l.at(4 * time.Second))
	for _, node := range []string{"own", "here", "away", "silent"} {
		l.recall(lostPeer{node: node, run: "0", heard: l.at(-time.Minute), until: l.at(time.Hour)}, "own")
	}
	l.recall(lostPeer{node: "over", run: "0", heard: l.at(-2 * time.Hour), until: l.at(-time.Hour)}, "own")
	l.want(5*time.Second, "silent/s", "here/0 over/0 own/0") // silent is another run
	l.shown(5*time.Second, "away 1m5s, silent 5s")
	l.published(5 * time.Second)
	l.heard(6*time.Second, heartbeat{Node: "away", ID: "2"})
	l.want(6*time.Second, "", "away/0")
}

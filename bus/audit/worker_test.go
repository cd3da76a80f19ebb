package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

// second is a time of these tests, by the clock of any generator.
func second(s int64) time.Time { return time.Unix(1_800_000_000+s, 0).UTC() }

func ms(s int64) int64 { return second(s).UnixMilli() }

// published is a worker event. Its times are seconds; 0: the event does not have it.
type published struct {
	at                        int64
	what, node                string
	from, after, until, lastT int64 // until: reserved
	holder                    string
}

func (e published) add(w *workerTrail) {
	opt := func(s int64) int64 {
		if s == 0 {
			return 0
		}
		return ms(s)
	}
	w.event(events.Event{Type: "leaf.worker." + e.what, Time: second(e.at)}, events.Worker{
		Node: e.node, FromMS: opt(e.from), AfterMS: opt(e.after), ReservedUntilMS: ms(e.until), UntilMS: opt(e.lastT), Holder: e.holder,
	})
}

func trailWith(events ...published) *workerTrail {
	w := &workerTrail{number: 5}
	for _, e := range events {
		e.add(w)
	}
	return w
}

func recordOf(node string, acquired, until int64) admin.Worker {
	return admin.Worker{Worker: 5, Node: node, Acquired: second(acquired), ReservedUntil: second(until)}
}

func runs(node string, now, until int64) admin.State {
	return admin.State{Node: node, Clock: admin.Clock{UnixMS: ms(now)}, ReservedUntil: ms(until)}
}

// acquired is how a generator takes a worker that another held until from.
func acquired(node string, at, from, after, until int64) published {
	return published{at: at, what: "acquired", node: node, from: from, after: after, until: until}
}

func released(node string, at, until int64) published {
	return published{at: at, what: "released", node: node, until: until}
}

func lost(node string, at, last, until int64) published {
	return published{at: at, what: "lost", node: node, lastT: last, until: until}
}

func TestWorkerTrail(t *testing.T) {
	t.Parallel()
	a, day := acquired("a", 10, 0, 0, 70), int64(86_400)
	for name, c := range map[string]struct {
		events  []published
		record  admin.Worker
		running []admin.State
		want    string // of the only contradiction; empty: there is none
	}{
		// A healthy installation.
		"nothing":                          {},
		"one that runs":                    {[]published{a}, recordOf("a", 10, 2*day), []admin.State{runs("a", day, 2*day)}, ""},
		"killed and expired":               {[]published{a, acquired("b", 80, 70, 65, 140)}, recordOf("b", 80, 140), []admin.State{runs("b", 90, 140)}, ""},
		"it ran on for days, then expired": {[]published{a, acquired("b", 3*day, 2*day, day, 4*day)}, recordOf("b", 3*day, 4*day), nil, ""},
		"stopped, and taken over":          {[]published{acquired("a", 10, 0, 0, day), released("a", 20, 30), acquired("b", 31, 30, 20, 90)}, recordOf("b", 31, 90), nil, ""},
		"stopped, and started again":       {[]published{a, released("a", 20, 50), acquired("a", 30, 21, 20, 90)}, recordOf("a", 10, 90), nil, ""},
		"released by an operator, then started again": {[]published{acquired("a", 10, 0, 0, day),
			{at: 30, what: "released", node: "c", holder: "a", until: 40}, acquired("b", 41, 40, 20, 100), lost("a", 50, 22, day)}, recordOf("b", 41, 100), nil, ""},
		"released by the holder of an older tenure": {[]published{a, acquired("b", 80, 70, 65, day),
			{at: 90, what: "released", node: "a", holder: "b", until: 100}, acquired("c", 110, 100, 79, day)}, recordOf("c", 110, day), nil, ""},
		"lost in a registry that was wiped, and taken later": {[]published{acquired("a", 10, 0, 0, day), lost("a", 20, 19, day), acquired("b", 31, 18, 0, 90)},
			recordOf("b", 31, 90), nil, ""},
		"expiring":                      {[]published{a, {at: 60, what: "expiring", node: "a", until: 90}, acquired("b", 91, 90, 50, 140)}, recordOf("b", 91, 140), nil, ""},
		"frozen, and woke up afterward": {[]published{a, acquired("b", 80, 70, 65, 140), lost("a", 90, 60, 70)}, recordOf("b", 80, 140), []admin.State{runs("b", 91, 140)}, ""},
		"cut off from the registry, its clock is behind": {[]published{a, acquired("b", 80, 70, 65, 140)}, recordOf("b", 80, 140),
			[]admin.State{runs("a", 60, 70), runs("b", 90, 140)}, ""},
		// Events that are missing, or late.
		"its release is missing": {[]published{acquired("a", 10, 0, 0, day), acquired("b", 31, 30, 20, 90)}, recordOf("b", 31, 90), []admin.State{runs("b", 40, 90)}, ""},
		"an operator's release is late": {[]published{acquired("a", 10, 0, 0, day), acquired("b", 41, 40, 20, 100),
			{at: 30, what: "released", node: "c", holder: "a", until: 40}}, recordOf("b", 41, 100), nil, ""},
		"the first is published after its heir": {[]published{acquired("b", 80, 70, 65, 140), a}, recordOf("b", 80, 140), nil, ""},
		"it came back, and that is missing":     {[]published{a, acquired("b", 80, 70, 65, 140), released("a", 200, 210)}, recordOf("a", 150, 210), nil, ""},
		"the newest holder is missing":          {[]published{a}, recordOf("b", 80, 140), []admin.State{runs("b", 90, 140)}, ""},
		"another data centre's registry":        {[]published{a}, admin.Worker{}, []admin.State{runs("a", 20, 80)}, ""},

		// Two holders.
		"a forged event":                 {[]published{a, acquired("ghost", 20, 20, 0, 90)}, recordOf("a", 10, 70), nil, "a may issue"},
		"a forged event, long afterward": {[]published{a, acquired("ghost", day, day, 0, 2*day)}, recordOf("a", 10, 3*day), []admin.State{runs("a", day+5, 3*day)}, "ghost may issue"},
		"the registry was restored, and the first went on": {[]published{a, acquired("b", day, 3000, 2000, 2*day), lost("a", day+2, day+2, 2*day)},
			recordOf("b", day, 2*day), nil, "(its event is of"},
		"the registry was restored from before the first began": {[]published{acquired("a", 1000, 900, 800, day), acquired("b", 2000, 950, 700, 2*day)},
			recordOf("b", 2000, 2*day), nil, "and b may issue"},
		"wiped, and the first is gone":           {[]published{acquired("a", 10, 0, 0, day), acquired("b", 31, 0, 0, 90)}, recordOf("b", 31, 90), nil, "and b may issue"},
		"put back to the one before":             {[]published{acquired("a", 10, 0, 0, day), released("a", 20, 30), acquired("b", 31, 30, 20, day)}, recordOf("a", 10, day), nil, "by the registry"},
		"overwritten by hand":                    {[]published{a}, recordOf("ghost", 10, 70), nil, "and ghost may issue from"},
		"overwritten by hand, after it stopped":  {[]published{a, released("a", 20, 30)}, recordOf("ghost", 10, 70), nil, "and ghost may issue from"},
		"overwritten by hand, and nothing known": {nil, recordOf("ghost", 10, 70), []admin.State{runs("a", 20, 60)}, "it runs and says so"},
		"two run":                                {[]published{a, acquired("b", 80, 70, 65, 140)}, recordOf("b", 80, 140), []admin.State{runs("a", 90, 140), runs("b", 90, 140)}, "a may issue"},
		"a clone runs":                           {[]published{a}, recordOf("a", 10, 70), []admin.State{runs("a", 20, 70), runs("a", 20, 70)}, "two generators with the name a"},
		// The borders.
		"it begins where the other ended":     {[]published{a, acquired("b", 70, 70, 0, 90)}, admin.Worker{}, nil, ""},
		"it begins just before the other end": {[]published{a, acquired("b", 69, 69, 0, 90)}, admin.Worker{}, nil, "and b may issue"},
	} {
		found := trailWith(c.events...).audit(c.record, c.running)
		if c.want == "" && len(found) > 0 || c.want != "" && len(found) != 1 {
			t.Errorf("%s: %+v", name, found)
			continue
		}
		if c.want != "" && (found[0].Kind != TwoHolders || *found[0].Worker != 5 || !strings.HasPrefix(found[0].Message, "worker 5: ") ||
			!strings.Contains(found[0].Message, c.want)) {
			t.Errorf("%s: %q, want it to say %q", name, found[0].Message, c.want)
		}
	}
}

// A worker that changes hands again and again takes a bounded amount of memory, and names a bounded number of
// contradictions.
func TestWorkerTrailIsBounded(t *testing.T) {
	t.Parallel()
	w := &workerTrail{number: 5}
	for i := range int64(mostTenures + 10) {
		acquired(fmt.Sprint("n", i%20), 10+i, 0, 0, 1_000_000).add(w)
	}
	if n := len(w.audit(admin.Worker{}, nil)); len(w.tenures) != mostTenures || n != mostContradictions {
		t.Errorf("%d tenures, %d contradictions", len(w.tenures), n)
	}
}

func TestTraceWorker(t *testing.T) {
	t.Parallel()
	day := int64(86_400)
	handed := []published{acquired("a", 10, 5, 4, day), released("a", 20, 30), acquired("b", 41, 40, 20, 90)}
	b, none := recordOf("b", 41, 90), admin.Worker{}
	for name, c := range map[string]struct {
		events  []published
		record  admin.Worker
		at      int64
		before  bool // a millisecond before that
		outcome TraceOutcome
		holder  string
		message string
	}{
		"the first time":              {handed, b, 5, false, Claimed, "a", "worker 5 was held by a for times from 2027-01-15T08:00:05.000Z on"},
		"before it":                   {handed, b, 5, true, NotRecorded, "", "not recorded"},
		"the last time":               {handed, b, 30, true, Claimed, "a", "held by a"},
		"between two, the first time": {handed, b, 30, false, NotRecorded, "", "not recorded"},
		"between two, the last time":  {handed, b, 40, true, NotRecorded, "", "not recorded"},
		"the next one":                {handed, b, 40, false, Claimed, "b", "held by b"},
		"up to the end":               {handed, b, 90, true, Claimed, "b", "held by b"},
		"the end":                     {handed, b, 90, false, Impossible, "", "claimed only up to 2027-01-15T08:01:30.000Z"},

		"it moved its end ahead":                 {[]published{acquired("a", 10, 5, 4, 70)}, recordOf("a", 10, 5*day), day, false, Claimed, "a", "held by a"},
		"it moved its end ahead, then the other": {[]published{acquired("a", 10, 5, 4, 70), acquired("b", 2*day, day, day-5, 3*day)}, recordOf("b", 2*day, 3*day), day, true, Claimed, "a", "held by a"},
		"its release is missing":                 {[]published{acquired("a", 10, 5, 4, day), acquired("b", 41, 40, 20, 90)}, b, 40, false, Claimed, "b", "b"},
		"started again after a clean stop":       {[]published{acquired("a", 10, 5, 4, 70), released("a", 20, 50), acquired("a", 30, 21, 20, 90)}, recordOf("a", 10, 90), 40, false, Claimed, "a", "from 2027-01-15T08:00:21.000Z on"},
		"lost: what it had issued":               {[]published{acquired("a", 10, 5, 4, 70), lost("a", 30, 25, 70)}, b, 25, true, Claimed, "a", "held by a"},
		"lost: what it had not":                  {[]published{acquired("a", 10, 5, 4, 70), lost("a", 30, 25, 70)}, b, 25, false, NotRecorded, "", "not recorded"},
		"nobody held it before":                  {[]published{acquired("a", 10, 0, 0, 70)}, recordOf("a", 10, 70), 9, false, Claimed, "a", "held by a"},
		"only the registry has it":               {nil, b, 41, false, Claimed, "b", "held by b"},
		"after the registry's holder":            {nil, recordOf("a", 10, 30), 30, false, Impossible, "", "claimed only up to"},
		"never claimed":                          {nil, none, 0, false, Impossible, "", "worker 5 was never claimed"},
	} {
		at := ms(c.at)
		if c.before {
			at--
		}
		got := Trace{Claims: []TracedClaim{}}
		trailWith(c.events...).trace(&got, c.record, at)
		holder := ""
		for _, h := range got.Claims {
			holder += h.Node
		}
		if got.Outcome != c.outcome || holder != c.holder || !strings.Contains(got.Message, c.message) {
			t.Errorf("%s: %s by %q: %s; want %s by %q: %s", name, got.Outcome, holder, got.Message, c.outcome, c.holder, c.message)
		}
		if h := got.Claims; len(h) > 0 && h[0].Record != (len(c.events) == 0) {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

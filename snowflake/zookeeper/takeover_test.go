package zookeeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/proxy"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// absence is how a generator is away from the others, while its successor takes
// its worker.
type absence struct {
	name      string
	away, end func(*process, *proxy.Proxy) error
}

var (
	stopped = absence{
		"stopped",
		func(p *process, _ *proxy.Proxy) error { return p.Freeze() },
		func(p *process, _ *proxy.Proxy) error { return p.Thaw() },
	}
	cutOff = absence{ // it goes on to the end of its reservation
		"cut off",
		func(_ *process, way *proxy.Proxy) error { way.Refuse(true); return nil },
		func(_ *process, way *proxy.Proxy) error { way.Refuse(false); return nil },
	}
)

const (
	contested, spare = 7, 8 // workers
	some             = 300_000
)

// duel is a generator that holds the contested worker and is away, and another
// one that wants it, with clocks of their own.
type duel struct {
	tb               testing.TB
	place            *site
	way              *proxy.Proxy // of the owner
	owner, successor *process
}

// begin starts the owner, which may have the workers up to last, and takes it
// away; and starts the successor.
func begin(tb testing.TB, hosts string, last int64, how absence, ofOwner, ofSuccessor time.Duration) *duel {
	tb.Helper()
	d := &duel{tb: tb}
	var behind *site
	d.place, behind, d.way = newProxied(tb, hosts)
	s := setting{
		Hosts: behind.hosts, Name: behind.name, Node: "owner", Ahead: ofOwner.Milliseconds(),
		First: contested, Last: last, Reserve: snowflake.LeastReserve,
	}
	d.owner = startProcess(tb, s)
	d.owner.await(some, contested)
	d.must(how.away(d.owner, d.way))
	s.Hosts, s.Node, s.Ahead, s.Last = hosts, "successor", ofSuccessor.Milliseconds(), contested
	d.successor = startProcess(tb, s)
	return d
}

func (d *duel) must(err error) {
	d.tb.Helper()
	if err != nil {
		d.tb.Fatal(err)
	}
}

// end stops both, and demands that no ID came twice and that each is of a worker
// which its generator may have.
func (d *duel) end() {
	d.tb.Helper()
	var ids allocatortest.Checker
	for _, p := range []*process{d.owner, d.successor} {
		p.end()
		all := p.issued()
		ids.Add(all.ranges...)
		if all.of(contested).ids+all.of(p.setting.Last).ids < all.of(contested, spare).ids || len(all.ranges) > 0 && all.of(contested, spare).ids == 0 {
			d.tb.Errorf("%s issued IDs of other workers than %d to %d", p.setting.Node, p.setting.First, p.setting.Last)
		}
	}
	d.tb.Logf("%d IDs", unique(d.tb, &ids))
}

// A generator is stopped or cut off while another takes its worker, and comes
// back. The successor takes the worker when, by its own clock, the reservation is
// over, and not before. Whatever the clocks say, the IDs of the two never meet:
// all times of the owner's are before all of the successor's.
func TestTakeover(t *testing.T) {
	t.Parallel()
	const hours = 3 * time.Hour
	hosts := server.Hosts(t)
	b := newBatch(t, 4) // each has two processes that are busy
	defer b.wait()
	b.run("in turn", func(t *testing.T) { takeTurns(t, hosts) })
	for _, c := range []struct {
		how              absence
		owner, successor time.Duration // by which the clocks are ahead
		never            bool          // to the successor the reservation lasts
	}{
		{how: stopped},
		{how: cutOff},
		{how: stopped, owner: -hours, successor: -hours},
		{how: cutOff, owner: hours, successor: hours},
		{how: cutOff, owner: 2 * time.Second},
		{how: stopped, owner: -time.Second},
		{how: stopped, successor: hours},
		{how: cutOff, successor: hours},
		{how: cutOff, owner: -hours},
		{how: stopped, owner: -hours, successor: hours},
		{how: stopped, owner: hours, never: true},
		{how: cutOff, successor: -hours, never: true},
		{how: cutOff, owner: hours, successor: -hours, never: true},
	} {
		b.run(fmt.Sprintf("%s, %v and %v ahead", c.how.name, c.owner, c.successor), func(t *testing.T) {
			d := begin(t, hosts, spare, c.how, c.owner, c.successor)
			if c.never {
				d.staysWithOwner(c.how)
			} else {
				d.changesHands(c.how)
			}
		})
	}
}

func (d *duel) changesHands(how absence) {
	d.tb.Helper()
	d.successor.await(some, contested)
	before := d.owner.issued().of(contested)
	d.must(how.end(d.owner, d.way))
	d.owner.await(some, contested, spare) // by a clock that is ahead it may soon have the worker again
	d.end()
	if after := d.successor.issued().of(contested); before.last >= after.first {
		d.tb.Errorf("an ID of the owner has the time %d, the first of the successor %d", before.last, after.first)
	}
}

func (d *duel) staysWithOwner(how absence) {
	d.tb.Helper()
	var until int64
	for _, r := range d.place.records(d.tb) {
		until = r.ReservedUntil
	}
	testkit.Eventually(d.tb, "the reservation is over by the owner's clock", func() bool {
		return time.Now().UnixMilli()+d.owner.setting.Ahead >= until
	})
	tries := d.successor.issued().none
	testkit.Eventually(d.tb, "the successor tries", func() bool { return d.successor.issued().none > tries+100 })
	d.must(how.end(d.owner, d.way))
	d.owner.await(some, contested)
	d.end()
	if n := len(d.successor.issued().ranges); n > 0 {
		d.tb.Errorf("the successor issued %d ranges", n)
	}
}

// takeTurns has two generators with one worker, of which one is away at a time.
func takeTurns(tb testing.TB, hosts string) {
	d := begin(tb, hosts, contested, stopped, 0, 0)
	away, next := d.owner, d.successor
	for range 4 {
		next.await(some, contested)
		d.must(next.Freeze())
		d.must(away.Thaw())
		away, next = next, away
	}
	next.await(some, contested)
	d.must(away.Thaw())
	next.await(some, contested)
	d.end()
}

package snowflake_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestLocalFile is the table of what a start makes of the file that it finds. Node "a" has run with worker 0 for
// 10 s when somebody starts: the owner, who goes on with worker 0, or a stranger, who takes another worker.
func TestLocalFile(t *testing.T) {
	type find = func(t *testing.T, n *node) *snowflaketest.Disk
	damaged := func(slots ...int) find { // half of one write and half of another
		return func(t *testing.T, n *node) *snowflaketest.Disk {
			d := n.kill()
			for _, slot := range slots {
				change(t, d, slot*slotSize+512, bytes.Repeat([]byte("?"), slotSize-512))
			}
			return d
		}
	}
	killed := func(_ *testing.T, n *node) *snowflaketest.Disk { return n.kill() }
	ended := func(_ *testing.T, n *node) *snowflaketest.Disk { return n.stop() }
	none := func(_ *testing.T, n *node) *snowflaketest.Disk { n.kill(); return snowflaketest.NewDisk() }
	behind := func(_ *testing.T, n *node) *snowflaketest.Disk { n.w.clock.step(-time.Hour); return n.kill() }
	powerless := func(t *testing.T, n *node) *snowflaketest.Disk {
		n.kill()
		return n.disk.PowerFail(allocatortest.Seed(t))
	}
	copied := func(_ *testing.T, n *node) *snowflaketest.Disk { return n.disk.Copy() }
	restarted := func(t *testing.T, n *node) *snowflaketest.Disk {
		d := n.disk.Copy()
		*n = *n.w.start(on(n.kill()))
		time.Sleep(3 * time.Second)
		n.run(time.Second)
		return d
	}
	place := func(at string) func(*setup) { return func(s *setup) { s.Place = at } }
	for name, c := range map[string]struct {
		found  find // by the start
		change func(*setup)
		owner  bool
		rest   time.Duration // at most
		runs   bool          // the generator of before goes on
		asks   bool          // only the registry, or a generator that answers, can tell
	}{
		"no file":                                  {found: none},
		"the same folder, killed":                  {found: killed, owner: true, rest: 2 * time.Second},
		"the same folder, ended":                   {found: ended, owner: true, rest: ms},
		"the same folder, power failed":            {found: powerless, owner: true, rest: 2 * time.Second},
		"the first slot half written":              {found: damaged(0), owner: true, rest: 6 * time.Second},
		"the second slot half written":             {found: damaged(1), owner: true, rest: 6 * time.Second},
		"both slots half written":                  {found: damaged(0, 1)},
		"a copy, moved here":                       {found: killed, change: place("inode:2")},
		"a copy beside the original":               {found: copied, change: place("inode:2"), runs: true},
		"a restored copy of one inode":             {found: killed, change: place("inode:11 born:5.000000001")},
		"another name, and a clock that is behind": {found: behind, change: func(s *setup) { s.Node = "b" }},
		"another installation":                     {found: killed, change: func(s *setup) { s.installation = "test" }},
		"another layout":                           {found: killed, change: func(s *setup) { s.Layout.WorkerBits, s.Layout.SequenceBits = 9, 13 }},
		"another range of workers":                 {found: killed, change: func(s *setup) { s.FirstWorker = 1 }, rest: 2 * time.Second},
		"a clone, the original answers": {found: copied, rest: 2 * time.Second, runs: true, change: func(s *setup) {
			s.HeldByPeer = func(worker int64) bool { return worker == 0 }
			s.HeldByPeerLately = s.HeldByPeer
		}},
		"a clone, the original has restarted": {found: restarted, runs: true, asks: true},
		"a clone, the original has restarted and was stopped": {asks: true, found: func(t *testing.T, n *node) *snowflaketest.Disk {
			d := restarted(t, n)
			n.kill()
			return d
		}},
		"a backup of this run": {owner: true, found: func(_ *testing.T, n *node) *snowflaketest.Disk {
			d := n.disk.Copy()
			n.run(10 * time.Second)
			n.kill()
			time.Sleep(ms) // that it goes on after this is owed to the clock alone
			return d
		}},
	} {
		for _, away := range []bool{false, true} {
			if away && c.asks {
				continue
			}
			t.Run(fmt.Sprintf("%s, registry away %v", name, away), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					n := w.start()
					n.run(10 * time.Second)
					d := c.found(t, n)
					someone := w.start(on(d), func(s *setup) {
						s.down, s.MaxWait = away, 10*time.Second
						if c.change != nil {
							c.change(s)
						}
						w.layout = s.Layout
					})
					if c.owner {
						someone.last = n.last
					}
					ranges, took, err := someone.try(1)
					switch {
					case away && !c.owner:
						if !errors.Is(err, snowflake.ErrNoWorker) || took != 0 {
							t.Errorf("%v, %v after %v; want %v at once", ranges, err, took, snowflake.ErrNoWorker)
						}
					case err != nil || took > c.rest:
						t.Errorf("%v, %v after %v; want an ID within %v", ranges, err, took, c.rest)
					default:
						if got := w.parts(ranges[0].First).Worker; (got == 0) != c.owner {
							t.Errorf("worker %d issues", got)
						}
					}
					if c.runs {
						n.run(10 * time.Second)
						n.wantEvents("acquired 0")
					}
				})
			})
		}
	}
}

package snowflake_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// TestRetire: a clean end leaves reserved what a restart may need, also if the answer does not come; and the worker
// is soon free for others.
func TestRetire(t *testing.T) {
	for name, fault := range map[string]outcome{
		"answered": answered, "not done": notDone, "done": wasDone,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				const grace = 30 * time.Second
				n := w.start(func(s *setup) { s.Grace = grace })
				n.run(2 * time.Minute)
				n.take(0)
				used := w.parts(n.last).UnixMS
				n.registry.loses("Put", fault)
				d := n.stop()
				until, before := used+1+grace.Milliseconds(), w.record(0).ReservedUntil
				if lowered := before == until; lowered != (fault != notDone) {
					t.Errorf("reserved is until %d, want %d unless the write was not done", before, until)
				}
				if fault == answered {
					n.wantEvents("acquired 0", "released 0")
				} else {
					n.wantEvents("acquired 0")
				}
				if s, _ := n.file.Saved(); s.ReservedUntil != until {
					t.Errorf("the file says until %d, want %d", s.ReservedUntil, until)
				}
				// Whatever the registry has, the file keeps its owner to what it may have.
				n = n.again(d, down)
				n.run(grace - time.Second)
				time.Sleep(time.Second + ms)
				n.refused(snowflake.ErrNoWorker)
				n.stop()
				if got := n.registry.written(); len(got) != 0 {
					t.Errorf("it wrote %+v, without ever having seen the record", got)
				}

				other := w.start(as("b"), func(s *setup) { s.LastWorker = 0 })
				if fault == notDone {
					other.refused(snowflake.ErrNoWorker)
					time.Sleep(time.Duration(before-w.clock.right())*ms + 1500*ms)
				}
				other.take(0)
			})
		})
	}
}

// TestRetireAfterOldList: a list that is older than the reservation makes the generator stop issuing. Its stop must
// not release times that it has used.
func TestRetireAfterOldList(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.take(0)
		old := []snowflake.Entry{w.record(0)}
		n.run(3 * time.Minute)
		n.take(0)
		used := w.parts(n.last).UnixMS
		if used < old[0].ReservedUntil {
			t.Fatalf("the list is not old enough: it has %d, where IDs are from %d", old[0].ReservedUntil, used)
		}
		n.registry.loses("Put", wasDone) // so that the next one is a conflict
		n.registry.age(old)
		time.Sleep(10 * time.Second) // until it has read the list
		synctest.Wait()
		n.refused(snowflake.ErrNoWorker)
		n.registry.age(nil)
		n.stop()
		if until := w.record(0).ReservedUntil; until <= used {
			t.Errorf("the record is reserved until %d, where IDs are from %d", until, used)
		}
	})
}

// TestRetireAfterLostReport: the last report was written, and its answer was lost. The end of the reservation is
// still lowered, in memory too.
func TestRetireAfterLostReport(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const grace = 30 * time.Second
		n := w.start(func(s *setup) { s.Grace = grace })
		n.run(2 * time.Minute)
		lost := n.registry.loses("Put", wasDone)
		go n.Verify(t.Context())
		synctest.Wait()
		if !lost() {
			t.Fatal("no report was sent")
		}
		n.end()
		n.wantEvents("acquired 0", "released 0")
		until := w.parts(n.last).UnixMS + 1 + grace.Milliseconds()
		if s := n.State(); s.ReservedUntil != until || w.record(0).ReservedUntil != until {
			t.Errorf("it is reserved until %d, in the registry %d; want %d", s.ReservedUntil, w.record(0).ReservedUntil, until)
		}
	})
}

// TestRelease: an operator releases a worker 10 s after all that its owner may have issued, and never later than
// before.
func TestRelease(t *testing.T) {
	const (
		now    = 1_700_000_000_000
		margin = 10_000 // as the documents say
		hour   = 3_600_000
	)
	for name, c := range map[string]struct{ acquired, reported, reserved, want int64 }{
		"killed long ago":                        {now - 9*hour, now - 2*hour, now + 22*hour, now + margin},
		"killed just now":                        {now - 9*hour, now - 1, now + 24*hour, now + margin},
		"its clock was ahead at the last report": {now - 9*hour, now + hour, now + 24*hour, now + hour + margin},
		"its clock was ahead when it took it":    {now + hour, now - 1, now + 24*hour, now + hour + margin},
		"reserved for less than that":            {now - 9*hour, now - hour, now + margin - 1, now + margin - 1},
		"its clock was ahead of the reservation": {now - 9*hour, now + 3*hour, now + 2*hour, now + 2*hour},
		"the reservation is over":                {now - 9*hour, now - 8*hour, now - hour, now - hour},
		"reserved for ever, and never heard":     {0, 0, math.MaxInt64, now + margin},
		"neither can be":                         {0, math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		e := snowflake.Entry{Version: 7, Record: snowflake.Record{
			Worker: 5, Node: "n", Incarnation: "old", ReservedUntil: c.reserved, Acquired: c.acquired, Reported: c.reported,
		}}
		got, again := snowflake.Release(e, now), snowflake.Release(e, now)
		if len(got.Incarnation) < 20 || got.Incarnation == again.Incarnation {
			t.Errorf("%s: the incarnations are %q and %q, want one of its own each", name, got.Incarnation, again.Incarnation)
		}
		want := e.Record
		want.Incarnation, want.ReservedUntil = got.Incarnation, c.want
		if got != want {
			t.Errorf("%s: %+v, want %+v, which is now%+d", name, got, want, c.want-now)
		}
	}
}

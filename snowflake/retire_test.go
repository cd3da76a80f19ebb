package snowflake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestRetire: a clean end leaves reserved what a restart may need, also if the
// answer does not come; and the worker is soon free for others.
func TestRetire(t *testing.T) {
	for name, fault := range map[string]snowflaketest.Fault{
		"answered": snowflaketest.None, "not done": snowflaketest.NotDone, "done": snowflaketest.Done,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				const grace = 30 * time.Second
				n := w.start(func(s *setup) { s.Grace = grace })
				n.run(2 * time.Minute)
				n.take(0)
				used := w.parts(n.last).UnixMS
				n.registry.set(func(context.Context, string) snowflaketest.Fault { return fault })
				d := n.stop()
				until, before := used+1+grace.Milliseconds(), w.record(0).ReservedUntil
				if lowered := before == until; lowered != (fault != snowflaketest.NotDone) {
					t.Errorf("reserved is until %d, want %d unless the write was not done", before, until)
				}
				if fault == snowflaketest.None {
					n.wantEvents("acquired 0", "released 0")
				} else {
					n.wantEvents("acquired 0")
				}
				if s, _ := n.file.Saved(); s.ReservedUntil != until {
					t.Errorf("the file says until %d, want %d", s.ReservedUntil, until)
				}
				// Whatever the registry has, the file keeps its owner to what it may have.
				last := n.last
				n = w.start(on(d), down)
				n.last = last
				n.run(grace - time.Second)
				time.Sleep(time.Second + ms)
				n.refused(snowflake.ErrNoWorker)
				n.stop()
				if got := n.registry.written(); len(got) != 0 {
					t.Errorf("it wrote %+v, without ever having seen the record", got)
				}

				other := w.start(as("b"), func(s *setup) { s.LastWorker = 0 })
				if fault == snowflaketest.NotDone {
					other.refused(snowflake.ErrNoWorker)
					time.Sleep(time.Duration(before-w.clock.right())*ms + 1500*ms)
				}
				other.take(0)
			})
		})
	}
}

// TestRetireAfterOldList: a list that is older than the reservation makes the generator stop
// issuing. Its stop must not release times that it has used.
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
		lost := false
		n.registry.set(func(_ context.Context, call string) snowflaketest.Fault {
			if call == "Put" && !lost {
				lost = true
				return snowflaketest.Done // so that the next one is a conflict
			}
			return snowflaketest.None
		})
		n.registry.age(old)
		for range 10 { // until it has read the list
			time.Sleep(time.Second)
			synctest.Wait()
		}
		n.refused(snowflake.ErrNoWorker)
		n.registry.age(nil)
		n.stop()
		if until := w.record(0).ReservedUntil; until <= used {
			t.Errorf("the record is reserved until %d, where IDs are from %d", until, used)
		}
	})
}

// TestRetireAfterLostReport: the last report was written, and its answer was lost. The end of the
// reservation is still lowered, in memory too.
func TestRetireAfterLostReport(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const grace = 30 * time.Second
		n := w.start(func(s *setup) { s.Grace = grace })
		n.run(2 * time.Minute)
		lost := false
		n.registry.set(func(_ context.Context, call string) snowflaketest.Fault {
			if call == "Put" && !lost {
				lost = true
				return snowflaketest.Done
			}
			return snowflaketest.None
		})
		go n.Verify(t.Context())
		synctest.Wait()
		if !lost {
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

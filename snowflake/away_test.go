package snowflake_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestRegistryAway: what is reserved is used up; half-way there is an alert.
func TestRegistryAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(10 * time.Minute)
		n.wantEvents("acquired 0")
		until := n.State().ReservedUntil
		n.registry.away(true)
		n.run(5*time.Minute - 4*time.Second)
		n.wantEvents()
		n.run(4 * time.Second)
		n.wantEvents("expiring 0")
		n.run(time.Duration(until-w.clock.right())*ms - ms)
		n.wantEvents()
		time.Sleep(ms)
		for range 10 {
			n.refused(snowflake.ErrNoWorker)
			if s := n.State(); !errors.Is(s.Err, snowflake.ErrNoWorker) || s.Worker != 0 || s.ReservedUntil != until {
				t.Errorf("the state is %+v", s)
			}
			time.Sleep(10 * time.Second)
		}
		n.registry.away(false)
		time.Sleep(1500 * ms)
		n.take(0)
		n.run(10 * time.Minute)
		n.wantEvents("recovered: expiring")
	})
}

// TestRegistryHangs: no request waits for a registry that does not answer, and the end waits for it only so long.
func TestRegistryHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(10 * time.Second)
		n.registry.hang()
		n.run(30 * time.Second)
		begin := time.Now()
		d := n.stop()
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the end took %v", took)
		}
		n.wantEvents("acquired 0", "expiring 0")
		n = n.again(d, func(s *setup) { s.late = 5 * time.Second; s.Registry.(*registry).hang() })
		n.wait(t.Context(), n.request(1), nil, 1500*time.Millisecond) // for an answer; then the file must do
	})
}

// TestLostAnswers: whether a write was done or not when its answer did not come, the generator goes on with one
// worker; also when it is killed at that moment.
func TestLostAnswers(t *testing.T) {
	nothing := func(*world) *snowflaketest.Disk { return snowflaketest.NewDisk() }
	for name, c := range map[string]struct {
		call   string
		before func(w *world) *snowflaketest.Disk // brings about that the write is the next
	}{
		"add": {"Add", nothing},
		"claim of the own worker": {"Put", func(w *world) *snowflaketest.Disk {
			n := w.start()
			n.run(10 * time.Second)
			return n.kill()
		}},
		"claim of another one's": {"Put", func(w *world) *snowflaketest.Disk {
			w.start(as("b")).kill()
			time.Sleep(time.Hour)
			return nothing(w)
		}},
	} {
		for _, fault := range []outcome{wasDone, notDone} {
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, done %v, killed %v", name, fault == wasDone, killed), func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world) {
						var lost func() bool
						n := w.start(on(c.before(w)), func(s *setup) { lost = s.Registry.(*registry).loses(c.call, fault) })
						n.refused(snowflake.ErrNoWorker)
						if killed {
							n = w.start(on(n.kill()))
						}
						time.Sleep(3 * time.Second) // it may have to rest
						n.issues(0, 0)
						n.run(time.Minute)
						n.wantEvents("acquired 0")
						if all := w.memory.Snapshot(); len(all) != 1 || !lost() {
							t.Errorf("it used %d workers; an answer was lost: %v", len(all), lost())
						}
					})
				})
			}
		}
	}
}

// TestRegistryRefuses: a registry that refuses the generator ends it, unless it has had a worker.
func TestRegistryRefuses(t *testing.T) {
	always := func() bool { return true }
	for _, c := range []struct {
		call  string
		known bool // it has had a worker in an earlier run
	}{{"List", false}, {"List", true}, {"Add", false}, {"Put", false}, {"Put", true}} {
		t.Run(fmt.Sprintf("%s, known %v", c.call, c.known), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				d := snowflaketest.NewDisk()
				if c.known {
					d = w.start().stop()
				} else if c.call == "Put" {
					w.start(as("b")).kill()
					time.Sleep(time.Hour)
				}
				n := w.start(on(d), func(s *setup) { s.Registry.(*registry).refuses(c.call, always) })
				n.stopped("somebody must look")
				n.wantEvents()
			})
		})
	}
	t.Run("requests that wait are refused", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(func(s *setup) {
				s.slow = time.Second
				s.Registry.(*registry).refuses("List", always)
			})
			n.wait(t.Context(), n.request(1), snowflake.ErrRefused, time.Second)
			n.stopped()
		})
	})
	t.Run("later, when it has had a worker", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			var refuses atomic.Bool
			n := w.start(func(s *setup) { s.Registry.(*registry).refuses("", refuses.Load) })
			n.run(10 * time.Second)
			refuses.Store(true)
			n.run(50 * time.Second)
			n.wantEvents("acquired 0", "expiring 0")
			time.Sleep(time.Minute)
			n.refused(snowflake.ErrNoWorker)
			w.memory.Wipe()
			time.Sleep(time.Minute)
			n.refused(snowflake.ErrNoWorker)
			refuses.Store(false)
			time.Sleep(3 * time.Second)
			n.take(0)
		})
	})
}

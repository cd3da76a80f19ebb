package snowflake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestStartWithoutRegistry: a new generator cannot issue anything, and says why.
// It starts by itself.
func TestStartWithoutRegistry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(down)
		for range 20 {
			n.refused(snowflake.ErrNoWorker)
			if err := n.State().Err; !errors.Is(err, snowflake.ErrNoWorker) || !errors.Is(err, errAway) {
				t.Errorf("the state is %v, want %v because %v", err, snowflake.ErrNoWorker, errAway)
			}
			time.Sleep(time.Second)
		}
		n.wantEvents()
		n.registry.away(false)
		time.Sleep(1500 * ms)
		n.take(0)
		n.wantEvents("acquired 0")
	})
}

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
		left := time.Duration(until-w.clock.right()) * ms
		n.run(left - ms)
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

// TestRegistryHangs: nobody waits for a registry that does not answer, and the
// end waits for it only so long.
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
		n = w.start(on(d), func(s *setup) { s.Registry.(*registry).hang() })
		n.wait(t.Context(), n.request(1), nil, 1500*time.Millisecond) // for an answer; then the file's word counts
	})
}

// TestLostAnswers: whether a write was done or not when its answer did not
// come, the generator goes on with one worker; also when it is killed at that
// moment.
func TestLostAnswers(t *testing.T) {
	// before brings about that the write under test is the next.
	nothing := func(*world) *snowflaketest.Disk { return snowflaketest.NewDisk() }
	for name, c := range map[string]struct {
		call   string
		before func(w *world) *snowflaketest.Disk
	}{
		"add": {"Add", nothing},
		"claim of the own worker": {"Put", func(w *world) *snowflaketest.Disk {
			n := w.start()
			n.run(10 * time.Second)
			return n.kill()
		}},
		"claim of another's": {"Put", func(w *world) *snowflaketest.Disk {
			w.start(as("b")).kill()
			time.Sleep(time.Hour)
			return snowflaketest.NewDisk()
		}},
	} {
		for _, fault := range []snowflaketest.Fault{snowflaketest.Done, snowflaketest.NotDone} {
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, done %v, killed %v", name, fault == snowflaketest.Done, killed), func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world) {
						d, once := c.before(w), false
						n := w.start(on(d), func(s *setup) {
							s.Registry.(*registry).set(func(_ context.Context, call string) snowflaketest.Fault {
								if call != c.call || once {
									return snowflaketest.None
								}
								once = true
								return fault
							})
						})
						if !once {
							t.Fatalf("there was no %s", c.call)
						}
						n.refused(snowflake.ErrNoWorker)
						if killed {
							n = w.start(on(n.kill()))
						}
						time.Sleep(3 * time.Second) // it may have to rest
						if got := n.take(0); got.Worker != 0 {
							t.Errorf("it has worker %d, want 0", got.Worker)
						}
						n.run(time.Minute)
						n.wantEvents("acquired 0")
						if all := w.memory.Snapshot(); len(all) != 1 {
							t.Errorf("it used %d workers", len(all))
						}
					})
				})
			}
		}
	}
}

// TestLostReports: a generator that runs notices nothing of it.
func TestLostReports(t *testing.T) {
	for _, fault := range []snowflaketest.Fault{snowflaketest.Done, snowflaketest.NotDone} {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start()
			writes := 0
			n.registry.set(func(_ context.Context, call string) snowflaketest.Fault {
				if call == "Put" {
					writes++
					if writes%2 == 0 {
						return fault
					}
				}
				return snowflaketest.None
			})
			n.run(5 * time.Minute)
			n.wantEvents("acquired 0")
			if ahead := n.State().ReservedUntil - w.clock.right(); ahead < 4*60_000 {
				t.Errorf("%d ms are reserved", ahead)
			}
		})
	}
}

package snowflake_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestReservation: how far ahead is reserved grows with the time since the start.
func TestReservation(t *testing.T) {
	for _, c := range []struct{ uptime, reserve, want time.Duration }{
		{0, 0, time.Minute},
		{30 * time.Second, 0, time.Minute},
		{time.Hour, 0, time.Hour},
		{time.Hour, 30 * time.Minute, 30 * time.Minute},
		{25 * time.Hour, 0, 24 * time.Hour},
		{0, 10 * time.Second, 10 * time.Second},
		{time.Minute, snowflake.LeastReserve, snowflake.LeastReserve},
	} {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(func(s *setup) { s.Reserve = c.reserve })
			w.clock.pass(c.uptime)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			ahead := time.Duration(n.State().ReservedUntil-w.clock.right()) * ms
			if ahead > c.want+3*time.Second || ahead < c.want-min(3*time.Second, c.want/2) {
				t.Errorf("after %v of at most %v, %v is reserved, want about %v", c.uptime, c.reserve, ahead, c.want)
			}
			n.run(5 * time.Second)
		})
	}
}

// TestAllTaken: the error names up to eight that have the workers. One whose reservation is over is taken over, from
// there on.
func TestAllTaken(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		nine := func(s *setup) { s.LastWorker = 8 }
		var others []*node
		for i := range 9 {
			others = append(others, w.start(as(fmt.Sprint("host-", i)), nine))
		}
		n := w.start(nine)
		time.Sleep(time.Second)
		err := n.refused(snowflake.ErrNoWorker)
		if text := "4 by host-4 until 2026-01-01T00:01:0"; !strings.Contains(err.Error(), text) || strings.Count(err.Error(), "host-") != 8 {
			t.Errorf("the error is %q, want eight, such as %q", err, text)
		}
		others[4].take(0)
		others[4].kill()
		until := w.record(4).ReservedUntil
		time.Sleep(time.Duration(until-w.clock.right())*ms - ms)
		n.refused(snowflake.ErrNoWorker)
		time.Sleep(1500 * ms)
		if got := n.issues(4, 0); got.UnixMS < until {
			t.Errorf("it begins with %+v, want %d or later", got, until)
		}
		e, ok := n.events[0].(snowflake.WorkerAcquired)
		if !ok || e.From != until || e.After < until-2*time.Minute.Milliseconds() || e.After >= until {
			t.Errorf("the event is %+v, want it to begin where the other one ended, %d, and to name that one's last report", e, until)
		}
		n.wantEvents("acquired 4")
	})
}

// TestPods: generators that start and stop in order, each with a new name and an empty folder, do not use up the
// workers: each takes over one whose grace is over.
func TestPods(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const workers = 4
		for i := range 50 {
			n := w.start(as(fmt.Sprint("pod-", i)), func(s *setup) { s.LastWorker, s.Grace = workers-1, 2*time.Second })
			time.Sleep(time.Second)
			if _, _, err := n.try(1); err != nil {
				t.Fatalf("pod %d: %v", i, err)
			}
			n.stop()
		}
	})
}

// TestHeldByPeer: a worker that a peer holds, or held lately, is not taken, whatever the registry says.
func TestHeldByPeer(t *testing.T) {
	lately := func(workers ...int64) func(*setup) {
		return func(s *setup) {
			s.HeldByPeerLately = func(worker int64) bool { return slices.Contains(workers, worker) }
		}
	}
	held := func(s *setup) { s.HeldByPeer = func(worker int64) bool { return worker == 0 } }
	one := func(s *setup) { s.LastWorker = 0 }
	for name, c := range map[string]struct {
		own    bool // the generator had worker 0; if not, another one had it
		peers  []func(*setup)
		worker int64
		events []string
	}{
		"those without a record":                 {false, []func(*setup){lately(0, 1, 3)}, 2, []string{"acquired 2"}},
		"all of them":                            {false, []func(*setup){lately(0), one}, -1, nil},
		"its own":                                {true, []func(*setup){lately(0), held}, 1, []string{"lost 0", "acquired 1", "recovered: lost"}},
		"its own, which a peer has just lost":    {true, []func(*setup){lately(0)}, 0, []string{"acquired 0"}},
		"one whose reservation is over, no peer": {false, nil, 0, []string{"acquired 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start()
				n.run(time.Second)
				d := n.kill()
				if !c.own {
					time.Sleep(time.Hour)
					d = snowflaketest.NewDisk()
				}
				n = n.again(d, c.peers...)
				time.Sleep(3 * time.Second)
				if c.worker < 0 {
					n.refused(snowflake.ErrNoWorker)
				} else {
					n.issues(c.worker, 0)
				}
				n.wantEvents(c.events...)
			})
		})
	}
}

// TestPeersKnown: before the peers have said what they hold, a generator takes only its own worker, and only if the
// registry confirms it.
func TestPeersKnown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var known atomic.Bool
		unknown := func(s *setup) { s.PeersKnown = known.Load }
		n := w.start(unknown)
		time.Sleep(10 * time.Second)
		n.refused(snowflake.ErrNoWorker)
		if all := w.memory.Snapshot(); len(all) != 0 {
			t.Errorf("reserved was %v", all)
		}
		known.Store(true)
		time.Sleep(1500 * ms)
		n.run(10 * time.Second)
		known.Store(false)
		n = n.again(n.stop(), unknown)
		n.issues(0, ms)
		n = n.again(n.stop(), unknown, down)
		n.refused(snowflake.ErrNoWorker)
		known.Store(true)
		time.Sleep(1500 * ms)
		n.issues(0, 0)
	})
}

// TestWorkerNotWanted: a generator whose configuration wants another worker takes that. The old one stays reserved.
func TestWorkerNotWanted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(30 * time.Second)
		n = n.again(n.kill(), func(s *setup) { s.FirstWorker, s.LastWorker = 7, 7 })
		before := w.record(0)
		time.Sleep(3 * time.Second)
		n.issues(7, 0)
		n.wantEvents("acquired 7")
		if now := w.record(0); now != before {
			t.Errorf("the record of worker 0 is %+v, and was %+v", now, before)
		}
	})
}

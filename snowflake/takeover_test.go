package snowflake_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// TestAllTaken: the error names who has the workers. One whose reservation is
// over is taken over, from there on.
func TestAllTaken(t *testing.T) {
	for _, workers := range []int64{1, 9} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				few := func(s *setup) { s.LastWorker = workers - 1 }
				var others []*node
				for i := range workers {
					others = append(others, w.start(as(fmt.Sprint("host-", i)), few))
				}
				n := w.start(few)
				time.Sleep(time.Second)
				err := n.refused(snowflake.ErrNoWorker)
				for i := range min(workers, 8) {
					if text := fmt.Sprintf("%d by host-%d until 2026-01-01T00:01:0", i, i); !strings.Contains(err.Error(), text) {
						t.Errorf("the error is %q, without %q", err, text)
					}
				}
				if got := strings.Count(err.Error(), "host-"); got > 8 {
					t.Errorf("the error names %d holders: %q", got, err)
				}
				time.Sleep(70 * time.Second)
				n.refused(snowflake.ErrNoWorker)
				n.wantEvents()

				gone := others[workers/2]
				gone.take(0)
				gone.kill()
				until := w.record(workers / 2).ReservedUntil
				time.Sleep(time.Duration(until-w.clock.right())*ms - ms)
				n.refused(snowflake.ErrNoWorker)
				time.Sleep(1500 * ms)
				if got := n.take(0); got.Worker != workers/2 || got.UnixMS < until {
					t.Errorf("it begins with %+v, want worker %d from %d on", got, workers/2, until)
				}
				if e, ok := n.events[len(n.events)-1].(snowflake.WorkerAcquired); !ok || e.From != until || e.After < until-2*time.Minute.Milliseconds() || e.After >= until {
					t.Errorf("the event is %+v, want it to begin where the other one ended, %d, and to name that one's last report", e, until)
				}
				n.wantEvents(fmt.Sprint("acquired ", workers/2))
				if got := w.record(workers / 2); got.Node != "a" || got.Acquired < until {
					t.Errorf("the record is %+v", got)
				}
			})
		})
	}
}

// TestStartTogether: generators that start at once get workers of their own,
// new ones and those that others left.
func TestStartTogether(t *testing.T) {
	for _, left := range []int64{0, 4, 8} {
		bubble(t, func(t *testing.T, w *world) {
			for i := range left {
				w.start(as(fmt.Sprint("old-", i))).kill()
			}
			time.Sleep(2 * time.Minute)
			var nodes []*node
			for i := range 8 {
				nodes = append(nodes, w.start(as(fmt.Sprint("new-", i)), func(s *setup) { s.slow = 10 * ms }))
			}
			var first []<-chan time.Duration
			for _, n := range nodes {
				first = append(first, n.batch(1)) // who is second waits, and is not refused
			}
			for _, f := range first {
				<-f
			}
			workers := make(map[int64]bool)
			for _, n := range nodes {
				workers[n.Worker()] = true
			}
			if len(workers) != 8 {
				t.Errorf("8 generators have %d workers, after %d others", len(workers), left)
			}
		})
	}
}

// A clock that is ahead takes the reservation of a busy holder for ended again and again, and a slow
// registry lets the holder write first each time. The generator gets another worker all the same.
func TestContestedWorker(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		often := func(s *setup) { s.Reserve = snowflake.LeastReserve }
		w.start(as("holder"), often)
		fast := func(s *setup) {
			clock := s.Clock
			s.Clock = func() snowflake.Reading { r := clock(); r.Wall += time.Hour.Milliseconds(); return r }
			s.slow = 400 * ms // the holder writes every 250 ms
		}
		n := w.start(often, fast)
		time.Sleep(10 * time.Second)
		if got := n.take(0); got.Worker == 0 {
			t.Errorf("it has worker %d, which another generator holds", got.Worker)
		}
	})
}

// TestHeldByPeer: a worker that a peer holds, or held lately, is not taken, whatever the
// registry says.
func TestHeldByPeer(t *testing.T) {
	lately := func(workers ...int64) func(*setup) {
		return func(s *setup) {
			s.HeldByPeerLately = func(worker int64) bool { return slices.Contains(workers, worker) }
		}
	}
	held := func(worker int64) func(*setup) {
		return func(s *setup) { s.HeldByPeer = func(held int64) bool { return held == worker } }
	}
	t.Run("one that nobody has", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			if got := w.start(lately(0, 1, 3)).take(0); got.Worker != 2 {
				t.Errorf("worker %d was taken, want 2", got.Worker)
			}
		})
	})
	t.Run("one whose reservation is over", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.start(as("b")).kill()
			time.Sleep(time.Hour)
			if got := w.start(lately(0)).take(0); got.Worker != 1 {
				t.Errorf("worker %d was taken, want 1", got.Worker)
			}
		})
	})
	t.Run("all of them", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.start(as("b")).kill()
			time.Sleep(time.Hour)
			n := w.start(lately(0), func(s *setup) { s.LastWorker = 0 })
			n.refused(snowflake.ErrNoWorker)
			if got := w.record(0); got.Node != "b" {
				t.Errorf("the record is %+v", got)
			}
		})
	})
	t.Run("its own", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start()
			n.run(time.Second)
			n = w.start(on(n.kill()), lately(0), held(0))
			time.Sleep(3 * time.Second)
			if got := n.take(0); got.Worker != 1 {
				t.Errorf("worker %d was taken, want 1", got.Worker)
			}
			n.wantEvents("lost 0", "acquired 1", "recovered: lost")
		})
	})
	t.Run("its own, which a peer has just lost", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start()
			n.run(time.Second)
			last := n.last
			n = w.start(on(n.kill()), lately(0))
			n.last = last
			time.Sleep(3 * time.Second)
			if got := n.take(0); got.Worker != 0 {
				t.Errorf("worker %d was taken, want 0", got.Worker)
			}
			n.wantEvents("acquired 0")
		})
	})
}

// TestPeersKnown: before the peers have said what they hold, a generator takes only its own
// worker, and only if the registry confirms it.
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
		last := n.last
		n = w.start(on(n.stop()), unknown)
		n.last = last
		time.Sleep(ms)
		n.take(0)

		last = n.last
		n = w.start(on(n.stop()), unknown, down)
		n.last = last
		n.refused(snowflake.ErrNoWorker)
		known.Store(true)
		time.Sleep(1500 * ms)
		n.take(0)
	})
}

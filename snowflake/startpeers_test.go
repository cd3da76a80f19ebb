package snowflake_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestStartOfNewNode: whoever takes a worker of which it knows nothing compares
// its clock with the median of the others'.
func TestStartOfNewNode(t *testing.T) {
	type peers = []time.Duration
	for name, c := range map[string]struct {
		peers   peers
		maxSkew time.Duration
		off     time.Duration // reported and refused; 0: neither
	}{
		"nobody answers":               {},
		"all are right":                {peers: peers{0, 10 * ms, -10 * ms}},
		"as far as may be":             {peers: peers{time.Second, time.Second}},
		"as far behind as may be":      {peers: peers{-time.Second}},
		"too far":                      {peers: peers{1001 * ms}, off: 1001 * ms},
		"too far behind":               {peers: peers{-1001 * ms}, off: -1001 * ms},
		"1.5 s off the median":         {peers: peers{1500 * ms, 1400 * ms, 9 * time.Hour}, off: 1500 * ms},
		"one wrong of five":            {peers: peers{0, 5 * ms, time.Hour, -5 * ms, 3 * ms}}, // their average is 12 min
		"two wrong of five":            {peers: peers{time.Hour, 0, 5 * ms, time.Hour, -5 * ms}},
		"three wrong of five":          {peers: peers{time.Hour, 0, 5 * ms, time.Hour, time.Hour}, off: time.Hour},
		"two, and the mean is near":    {peers: peers{0, 2 * time.Second}},
		"two, and the mean is not":     {peers: peers{0, 2002 * ms}, off: 1001 * ms},
		"four, and one is wrong":       {peers: peers{time.Hour, 0, 1 * ms, 1 * ms}},
		"four, half of them wrong":     {peers: peers{time.Hour, 0, time.Hour, 1 * ms}, off: 30*time.Minute + 500*time.Microsecond},
		"more may be":                  {peers: peers{time.Minute}, maxSkew: time.Minute},
		"more than may be":             {peers: peers{time.Minute + ms}, maxSkew: time.Minute, off: time.Minute + ms},
		"as far as a clock can be off": {peers: peers{1<<63 - 1, 1<<63 - 1}, off: 1<<63 - 2},
	} {
		for _, left := range []bool{false, true} { // a worker that another gave free
			t.Run(fmt.Sprintf("%s, one to take over %v", name, left), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					if left {
						w.start(as("b")).kill()
						time.Sleep(time.Hour)
					}
					var asked atomic.Int64
					start := func() *node {
						return w.start(func(s *setup) {
							s.MaxClockSkew = c.maxSkew
							s.PeerClocks = func(context.Context) []time.Duration { asked.Add(1); return c.peers }
						})
					}
					if c.off == 0 {
						n := start()
						n.take(0)
						n.wantEvents("acquired 0")
						n.run(time.Minute)
						if n := asked.Load(); n != 1 {
							t.Errorf("the peers were asked %d times", n)
						}
						return
					}
					n := w.untouched(start)
					now := w.clock.read().Wall
					n.wantSkewed(snowflake.ClockSkewed{Now: now, Peers: now + c.off.Milliseconds(), Threshold: cmp.Or(c.maxSkew, time.Second)})
					n.stopped(c.off.Abs().String(), fmt.Sprintf("%d answered", len(c.peers)), "clock right")
				})
			})
		}
	}
}

// TestStartKnown: who has its worker still does not ask what time it is; who
// has lost it meanwhile is as a new node.
func TestStartKnown(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost %v", lost), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start()
				n.run(time.Minute)
				d, last := n.stop(), n.last
				if lost {
					w.memory.Wipe()
				}
				n = w.start(on(d), func(s *setup) {
					s.PeerClocks = func(context.Context) []time.Duration { return []time.Duration{time.Hour} }
				})
				n.last = last
				if lost {
					n.stopped("1h0m0s behind")
					return
				}
				time.Sleep(ms)
				n.take(0)
				n.wantEvents("acquired 0")
			})
		})
	}
}

// TestStartIsOver: a generator that has had a worker is not refused any more:
// not when it takes another, and not for its clock.
func TestStartIsOver(t *testing.T) {
	for _, down := range []bool{false, true} { // the registry, at the start
		t.Run(fmt.Sprintf("the registry away at first %v", down), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start()
				n.run(time.Minute)
				d, last := n.stop(), n.last
				var asked atomic.Int64
				n = w.start(on(d), func(s *setup) {
					s.down = down
					s.PeerClocks = func(context.Context) []time.Duration { asked.Add(1); return []time.Duration{time.Hour} }
				})
				n.last = last
				n.run(2 * time.Second)
				e := w.record(0)
				e.Node, e.Incarnation = "b", "another"
				if _, err := w.memory.Put(t.Context(), e.Record, e.Version); err != nil {
					t.Fatal(err)
				}
				w.clock.step(-time.Hour)
				n.registry.away(false)
				time.Sleep(5 * time.Second)
				n.refused(snowflake.ErrClockBackwards)
				if n.Worker() != 1 || asked.Load() > 0 {
					t.Errorf("it holds worker %d, want 1; the peers were asked %d times", n.Worker(), asked.Load())
				}
				time.Sleep(time.Hour)
				n.run(time.Minute)
			})
		})
	}
}

// TestStartAfterLongWait: who ran for a while without a worker, as the registry was
// away, is not ended by a refusal; it gets a worker when the reason is gone.
func TestStartAfterLongWait(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var off atomic.Int64
		off.Store(int64(2 * time.Second))
		n := w.start(func(s *setup) {
			s.down = true
			s.PeerClocks = func(context.Context) []time.Duration { return []time.Duration{time.Duration(off.Load())} }
		})
		time.Sleep(2 * time.Minute)
		n.registry.away(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-n.ended:
			t.Fatalf("Run ended: %v", n.ran)
		default:
		}
		n.wantEvents("skewed")
		if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, snowflake.ErrRefused) {
			t.Errorf("a request is refused with %v", err)
		}
		off.Store(0)
		time.Sleep(1500 * ms) // the longest pause between two attempts
		n.run(10 * time.Second)
		n.wantEvents("acquired 0", "recovered: skewed")
	})
}

// TestStartAsksOnce: the peers are asked when there is a worker to take, and
// again only if it cannot be had for long.
func TestStartAsksOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := func(s *setup) { s.LastWorker = 0 }
		other := w.start(as("b"), one)
		var asked atomic.Int64
		n := w.start(one, func(s *setup) {
			s.PeerClocks = func(context.Context) []time.Duration { asked.Add(1); return []time.Duration{0} }
		})
		time.Sleep(10 * time.Second)
		if n := asked.Load(); n > 0 {
			t.Errorf("the peers were asked %d times while all workers were taken", n)
		}
		other.kill()
		n.registry.set(func(_ context.Context, call string) snowflaketest.Fault {
			if call == "Put" {
				return snowflaketest.NotDone
			}
			return snowflaketest.None
		})
		time.Sleep(2 * time.Minute)
		if n := asked.Load(); n < 3 || n > 12 { // for a minute and more
			t.Errorf("the peers were asked %d times, want once each 10 s", n)
		}
		n.registry.set(nil)
		time.Sleep(1500 * ms)
		n.take(0)
	})
}

// TestStartWithPeersThatDoNotAnswer: a start waits for them for a while, and
// then has time left for the registry in the same attempt.
func TestStartWithPeersThatDoNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) {
			s.slow = 200 * ms
			s.PeerClocks = func(ctx context.Context) []time.Duration { <-ctx.Done(); return nil }
		})
		n.wait(t.Context(), n.request(1), nil, 1400*ms)
		n.wantEvents("acquired 0")
	})
}

// TestStartWhilePeersAreAsked: what happens before they have answered counts.
func TestStartWhilePeersAreAsked(t *testing.T) {
	during := func(w *world, what func()) func(s *setup) {
		var asked atomic.Bool
		return func(s *setup) {
			s.PeerClocks = func(context.Context) []time.Duration {
				off := -time.Duration(w.clock.read().Wall-w.clock.right()) * ms
				if !asked.Swap(true) {
					time.Sleep(100 * ms)
					what()
				}
				return []time.Duration{off}
			}
		}
	}
	t.Run("the clock is set right", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.clock.step(-time.Hour)
			n := w.start(during(w, func() { w.clock.step(time.Hour) }))
			time.Sleep(time.Second)
			if n.Worker() != 0 {
				t.Errorf("the state is %+v", n.State())
			}
			n.wantEvents("acquired 0")
		})
	})
	t.Run("the clock is set wrong", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(during(w, func() { w.clock.step(-time.Hour) }))
			time.Sleep(time.Second)
			n.stopped(" behind the ")
		})
	})
	t.Run("the process stands still", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			still := func(s *setup) {
				ask := s.PeerClocks
				var asked atomic.Bool
				s.PeerClocks = func(ctx context.Context) []time.Duration {
					if asked.Swap(true) {
						return ask(ctx)
					}
					w.clock.pass(time.Minute)
					return []time.Duration{-30 * time.Second} // half of the way there and back
				}
			}
			n := w.start(during(w, func() {}), still)
			time.Sleep(time.Second)
			n.take(0)
		})
	})
	t.Run("another claims the worker", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.start(as("b")).kill()
			time.Sleep(time.Hour)
			var claimed atomic.Bool
			n := w.start(during(w, func() { claimed.Store(true) }), func(s *setup) {
				s.HeldByPeerLately = func(worker int64) bool { return worker == 0 && claimed.Load() }
			})
			time.Sleep(100 * ms)
			if got := n.take(0); got.Worker != 1 {
				t.Errorf("it took worker %d, want 1", got.Worker)
			}
		})
	})
	t.Run("the end comes", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(func(s *setup) {
				s.PeerClocks = func(ctx context.Context) []time.Duration { <-ctx.Done(); return []time.Duration{time.Hour} }
			})
			n.end()
			if n.ran != nil {
				t.Errorf("Run returned %v", n.ran)
			}
			n.wantEvents()
		})
	})
}

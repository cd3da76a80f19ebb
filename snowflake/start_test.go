package snowflake_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// stopped checks that the start was refused for a reason in which there are
// these words, that Run has ended, and that all requests hear of the reason.
func (n *node) stopped(words ...string) {
	n.w.t.Helper()
	synctest.Wait()
	select {
	case <-n.ended:
	default:
		n.w.t.Fatalf("it was not refused; the state is %+v", n.State())
	}
	if !errors.Is(n.ran, snowflake.ErrRefused) {
		n.w.t.Fatalf("Run returned %v, want %v", n.ran, snowflake.ErrRefused)
	}
	for _, word := range words {
		if !strings.Contains(n.ran.Error(), word) {
			n.w.t.Errorf("the error does not say %q: %v", word, n.ran)
		}
	}
	for range 2 {
		if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, snowflake.ErrRefused) {
			n.w.t.Errorf("a request is refused with %v, want %v in it", err, n.ran)
		}
		if s := n.State(); s.Worker != -1 || !errors.Is(s.Err, snowflake.ErrRefused) {
			n.w.t.Errorf("the state is %+v", s)
		}
		time.Sleep(time.Hour) // it stays so
	}
}

// wantSkewed checks that one alert was told, and what it says.
func (n *node) wantSkewed(want snowflake.ClockSkewed) {
	n.w.t.Helper()
	if got := fmt.Sprintf("%+v", n.events); got != fmt.Sprintf("%+v", []snowflake.Event{want}) {
		n.w.t.Errorf("told was %s, want %+v", got, want)
	}
}

// untouched runs start and checks that it has written nothing.
func (w *world) untouched(start func() *node) *node {
	w.t.Helper()
	before := w.memory.Snapshot()
	n := start()
	saved, _ := n.file.Saved()
	fresh, err := snowflake.NewFile(n.disk.Copy())
	if err != nil {
		w.t.Fatal(err)
	}
	if read, _ := fresh.Saved(); read != saved || len(n.registry.written()) > 0 || !maps.Equal(w.memory.Snapshot(), before) {
		w.t.Errorf("it wrote %+v into the registry, and its file says %+v", n.registry.written(), read)
	}
	return n
}

// set sets the wall clock to a time.
func (w *world) set(wall int64) { w.clock.step(time.Duration(wall-w.clock.read().Wall) * ms) }

// TestStartBehind: a start waits for a clock that is a little behind what the
// last run has put on record, in the registry or, where that is away, in the
// file; further behind it is refused.
func TestStartBehind(t *testing.T) {
	for name, c := range map[string]struct {
		behind  time.Duration // of what is on record
		maxWait time.Duration
		refused bool
	}{
		"not at all":          {behind: 0},
		"by 1 ms":             {behind: ms},
		"by 1 s":              {behind: time.Second},
		"by 5 s":              {behind: 5 * time.Second},
		"by more":             {behind: 5*time.Second + ms, refused: true},
		"by an hour":          {behind: time.Hour, refused: true},
		"by what may be":      {behind: 300 * ms, maxWait: 300 * ms},
		"by more than may be": {behind: 301 * ms, maxWait: 300 * ms, refused: true},
		"by 290 years":        {behind: 290 * 365 * 24 * time.Hour, refused: true},
	} {
		for _, killed := range []bool{false, true} {
			for _, away := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, killed %v, the registry away %v", name, killed, away), func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world) {
						n := w.start()
						n.run(40*time.Second + 100*ms)
						n.take(0)
						last := n.last
						end := n.stop
						if killed {
							end = n.kill
						}
						d := end()
						recorded := w.record(0).Reported
						if s, _ := n.file.Saved(); away {
							recorded = s.Ceiling - 6000 // it was less than that ahead
						}
						w.set(recorded)
						w.clock.step(-c.behind)
						now := w.clock.read().Wall
						start := func() *node {
							return w.start(on(d), func(s *setup) { s.down, s.MaxClockWait = away, c.maxWait })
						}
						if c.refused {
							n = w.untouched(start)
							n.wantSkewed(snowflake.ClockSkewed{Now: now, Recorded: recorded, Threshold: cmp.Or(c.maxWait, 5*time.Second)})
							n.stopped(c.behind.Truncate(ms).String(), "--node", time.UnixMilli(now).UTC().Format(snowflake.TimeFormat),
								time.UnixMilli(recorded).UTC().Format(snowflake.TimeFormat))
							if len(n.events) != 1 {
								t.Errorf("told was %v", n.events)
							}
							return
						}
						if c.behind > 0 {
							n = w.untouched(start)
							n.last = last
							time.Sleep(c.behind - ms)
							synctest.Wait()
							if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, snowflake.ErrClockBackwards) {
								t.Errorf("the error is %v, want %v in it", err, snowflake.ErrClockBackwards)
							}
							n.wantTold()
							time.Sleep(2 * ms)
							synctest.Wait()
						} else {
							n = start()
							n.last = last
						}
						if n.Worker() != 0 {
							t.Fatalf("it holds worker %d when the clock has caught up, want 0: %+v", n.Worker(), n.State())
						}
						time.Sleep(7 * time.Second) // it rests
						synctest.Wait()
						n.take(0)
						if away {
							n.wantTold()
						} else {
							n.wantTold("acquired 0")
						}
					})
				})
			}
		}
	}
}

// TestStartFarBehind: a clock may be behind by more than a duration can say.
func TestStartFarBehind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(time.Second)
		n = w.start(on(n.stop()), func(s *setup) {
			s.Clock = func() snowflake.Reading { r := w.clock.read(); r.Wall -= 1 << 50; return r }
		})
		n.wantTold("skewed")
		n.stopped("2562047h")
	})
}

// TestStartBehindSaid: the log tells once what is waited for.
func TestStartBehindSaid(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(10 * time.Second)
		d := n.stop()
		w.clock.step(-4 * time.Second)
		var log bytes.Buffer
		n = w.start(on(d), func(s *setup) { s.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		time.Sleep(4*time.Second + ms)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "until the clock has caught up") != 1 || strings.Count(got, "\n") != 2 {
			t.Errorf("the log is %s", got)
		}
		n.wantTold("acquired 0")
	})
}

// TestStartAfterCrash: what the last run had of time beyond its clock, and what
// is added when a slot of the file cannot be read, is no clock that is behind.
func TestStartAfterCrash(t *testing.T) {
	for _, away := range []bool{false, true} {
		for slot := range int64(3) { // the third is neither of the two
			t.Run(fmt.Sprintf("slot %d damaged, the registry away %v", slot, away), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					n := w.start()
					n.take(0)
					if s, _ := n.file.Saved(); s.Ceiling != origin+2000 {
						t.Fatalf("the ceiling is %d ms ahead, want as much as it can be", s.Ceiling-origin)
					}
					d, last := n.kill(), n.last
					if _, err := d.WriteAt([]byte("damaged"), slot*4096+100); err != nil {
						t.Fatal(err)
					}
					n = w.start(on(d), func(s *setup) { s.down = away })
					n.last = last
					if n.Worker() != 0 {
						t.Errorf("it holds worker %d, want 0: %+v", n.Worker(), n.State())
					}
					rest := 2000 * ms
					if slot < 2 {
						rest += 4000 * ms
					}
					time.Sleep(rest)
					n.take(0)
				})
			})
		}
	}
}

// TestStartAfterStep: a time that was never believed is not on record.
func TestStartAfterStep(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start(func(s *setup) {
					s.Peers = w.later(func(context.Context) []time.Duration { return []time.Duration{-time.Hour} })
				})
				n.run(10 * time.Second)
				w.clock.step(time.Hour)
				n.run(10 * time.Second) // it reports
				last, end := n.last, n.stop
				if killed {
					end = n.kill
				}
				d := end()
				w.clock.step(-time.Hour)
				n = w.start(on(d))
				n.last = last
				time.Sleep(2 * time.Second) // it may rest
				n.take(0)
				n.wantTold("acquired 0")
			})
		})
	}
}

// TestStartUnderAnotherName: a data folder under another name is a new node's,
// which starts with a clock that the old one could not start with.
func TestStartUnderAnotherName(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(time.Minute)
		d := n.stop()
		w.clock.step(-time.Hour)
		old := w.record(0)
		n = w.start(on(d))
		n.wantTold("skewed")
		n = w.start(on(n.disk.Kill()), func(s *setup) { s.Node = "b" })
		if got := n.take(0); got.Worker != 1 || got.UnixMS != w.clock.read().Wall {
			t.Errorf("the first ID has %+v, want worker 1 now", got)
		}
		n.wantTold("acquired 1")
		if e := w.record(0); e != old {
			t.Errorf("the old worker's record is %+v, was %+v", e, old)
		}
		n.run(time.Minute)
	})
}

// TestStartOfNewNode: whoever takes a worker of which it knows nothing compares
// its clock with the median of the others'.
func TestStartOfNewNode(t *testing.T) {
	type peers = []time.Duration
	for name, c := range map[string]struct {
		peers   peers
		maxSkew time.Duration
		off     time.Duration // told and refused; 0: neither
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
							s.Peers = func(context.Context) []time.Duration { asked.Add(1); return c.peers }
						})
					}
					if c.off == 0 {
						n := start()
						n.take(0)
						n.wantTold("acquired 0")
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
					s.Peers = func(context.Context) []time.Duration { return []time.Duration{time.Hour} }
				})
				n.last = last
				if lost {
					n.stopped("1h0m0s behind")
					return
				}
				time.Sleep(ms)
				n.take(0)
				n.wantTold("acquired 0")
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
					s.Peers = func(context.Context) []time.Duration { asked.Add(1); return []time.Duration{time.Hour} }
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
			s.Peers = func(context.Context) []time.Duration { return []time.Duration{time.Duration(off.Load())} }
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
		n.wantTold("skewed")
		if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, snowflake.ErrRefused) {
			t.Errorf("a request is refused with %v", err)
		}
		off.Store(0)
		time.Sleep(1500 * ms) // the longest pause between two attempts
		n.run(10 * time.Second)
		n.wantTold("acquired 0", "recovered: skewed")
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
			s.Peers = func(context.Context) []time.Duration { asked.Add(1); return []time.Duration{0} }
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
			s.Peers = func(ctx context.Context) []time.Duration { <-ctx.Done(); return nil }
		})
		n.wait(t.Context(), n.request(1), nil, 1400*ms)
		n.wantTold("acquired 0")
	})
}

// TestStartWhilePeersAreAsked: what happens before they have answered counts.
func TestStartWhilePeersAreAsked(t *testing.T) {
	during := func(w *world, what func()) func(s *setup) {
		var asked atomic.Bool
		return func(s *setup) {
			s.Peers = func(context.Context) []time.Duration {
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
			n.wantTold("acquired 0")
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
				ask := s.Peers
				var asked atomic.Bool
				s.Peers = func(ctx context.Context) []time.Duration {
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
				s.Claimed = func(worker int64) bool { return worker == 0 && claimed.Load() }
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
				s.Peers = func(ctx context.Context) []time.Duration { <-ctx.Done(); return []time.Duration{time.Hour} }
			})
			n.end()
			if n.ran != nil {
				t.Errorf("Run returned %v", n.ran)
			}
			n.wantTold()
		})
	})
}

// TestRegistryRefuses: a registry that refuses the generator ends it, unless it
// has had a worker.
func TestRegistryRefuses(t *testing.T) {
	for _, call := range []string{"List", "Add", "Put"} {
		for _, known := range []bool{false, true} {
			if known && call == "Add" {
				continue
			}
			t.Run(fmt.Sprintf("%s, known %v", call, known), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					d := snowflaketest.NewDisk()
					if known {
						n := w.start()
						n.run(10 * time.Second)
						d = n.stop()
					} else if call == "Put" {
						w.start(as("b")).kill()
						time.Sleep(time.Hour)
					}
					n := w.start(on(d), func(s *setup) {
						s.Registry = refusing{s.Registry, call, func() bool { return true }}
					})
					n.stopped("somebody must look")
					n.wantTold()
				})
			})
		}
	}
	t.Run("those that wait are told", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(func(s *setup) {
				s.slow = time.Second
				s.Registry = refusing{s.Registry, "List", func() bool { return true }}
			})
			n.wait(t.Context(), n.request(1), snowflake.ErrRefused, time.Second)
			n.stopped()
		})
	})
	t.Run("later, when it has had a worker", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			var refuses atomic.Bool
			n := w.start(func(s *setup) { s.Registry = refusing{s.Registry, "", refuses.Load} })
			n.run(10 * time.Second)
			refuses.Store(true)
			n.run(50 * time.Second)
			n.wantTold("acquired 0", "expiring 0")
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

// refusing is a registry that refuses a call, or, if that is "", all, while
// when says so.
type refusing struct {
	snowflake.Registry
	call string
	when func() bool
}

func (r refusing) check(call string) error {
	if (r.call == "" || r.call == call) && r.when() {
		return fmt.Errorf("%w: somebody must look", snowflake.ErrRefused)
	}
	return nil
}

func (r refusing) List(ctx context.Context) ([]snowflake.Entry, error) {
	entries, err := r.Registry.List(ctx)
	return entries, errors.Join(err, r.check("List"))
}

func (r refusing) Add(ctx context.Context, record snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	if err := r.check("Add"); err != nil {
		return snowflake.Entry{}, err
	}
	return r.Registry.Add(ctx, record, c)
}

func (r refusing) Put(ctx context.Context, record snowflake.Record, version uint64) (uint64, error) {
	if err := r.check("Put"); err != nil {
		return 0, err
	}
	return r.Registry.Put(ctx, record, version)
}

package snowflake_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// stopped checks that the registry refused the start for a reason in which there are these words, that Run has ended,
// and that all requests hear of the reason.
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

// waits checks that the generator runs without a worker, because of its clock, and that all requests hear of the
// reason, in which there are these words.
func (n *node) waits(words ...string) {
	n.w.t.Helper()
	synctest.Wait()
	select {
	case <-n.ended:
		n.w.t.Fatalf("Run returned %v", n.ran)
	default:
	}
	err := n.refused(snowflake.ErrNoWorker)
	for _, word := range words {
		if !strings.Contains(fmt.Sprint(err), word) {
			n.w.t.Errorf("the error does not say %q: %v", word, err)
		}
	}
	if s := n.State(); s.Worker != -1 || s.Err == nil {
		n.w.t.Errorf("the state is %+v", s)
	}
}

// wantEvent checks that there was one event, and what it says.
func (n *node) wantEvent(want snowflake.Event) {
	n.w.t.Helper()
	synctest.Wait()
	if got := fmt.Sprintf("%+v", n.events); got != fmt.Sprintf("%+v", []snowflake.Event{want}) {
		n.w.t.Errorf("the events were %s, want %+v", got, want)
	}
}

// untouched runs start and checks that it has written nothing.
func (w *world) untouched(start func() *node) *node {
	w.t.Helper()
	before := w.memory.Snapshot()
	n := start()
	saved, _ := n.file.Saved()
	fresh := open(w.t, n.disk.Copy())
	if read, _ := fresh.Saved(); read != saved || len(n.registry.written()) > 0 || !maps.Equal(w.memory.Snapshot(), before) {
		w.t.Errorf("it wrote %+v into the registry, and its file says %+v", n.registry.written(), read)
	}
	return n
}

// TestStartBehind: a start waits for a clock that is a little behind what the last run has put on record, in the
// registry or, where that is away, in the file. If it is further behind, that is reported.
func TestStartBehind(t *testing.T) {
	for name, c := range map[string]struct {
		behind   time.Duration // of what is on record
		maxWait  time.Duration
		reported bool
	}{
		"not at all":          {},
		"by 1 ms":             {behind: ms},
		"by 5 s":              {behind: 5 * time.Second},
		"by more":             {behind: 5*time.Second + ms, reported: true},
		"by what may be":      {behind: 300 * ms, maxWait: 300 * ms},
		"by more than may be": {behind: 301 * ms, maxWait: 300 * ms, reported: true},
		"by 290 years":        {behind: 290 * 365 * 24 * time.Hour, reported: true},
	} {
		for i := range 4 {
			killed, away := i&1 > 0, i&2 > 0
			t.Run(fmt.Sprintf("%s, killed %v, the registry away %v", name, killed, away), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					n := w.start()
					n.run(10*time.Second + 100*ms)
					n.take(0)
					end := n.stop
					if killed {
						end = n.kill
					}
					d := end()
					s, _ := n.file.Saved()
					recorded := s.Ceiling - 6000 // it was no more than that ahead
					if !away {
						recorded = max(recorded, w.record(0).Reported)
					}
					w.clock.step(time.Duration(recorded-w.clock.read().Wall)*ms - c.behind)
					now := w.clock.read().Wall
					start := func() *node {
						return n.again(d, func(s *setup) { s.down, s.MaxClockWait = away, c.maxWait })
					}
					if c.reported {
						n = w.untouched(start)
						n.wantEvent(snowflake.ClockSkewed{Now: now, Recorded: recorded, Threshold: cmp.Or(c.maxWait, 5*time.Second).Milliseconds()})
						n.waits(c.behind.Truncate(ms).String(), "--node", time.UnixMilli(now).UTC().Format(snowflake.TimeFormat),
							time.UnixMilli(recorded).UTC().Format(snowflake.TimeFormat))
					} else if c.behind > 0 {
						n = w.untouched(start)
						n.wantEvents()
					} else {
						n = start()
					}
					if c.behind > 0 {
						time.Sleep(min(c.behind, time.Hour) - ms)
						synctest.Wait()
						if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, snowflake.ErrClockBackwards) {
							t.Errorf("the error is %v, want %v in it", err, snowflake.ErrClockBackwards)
						}
						time.Sleep(2 * ms)
						synctest.Wait()
					}
					if c.behind > time.Hour {
						n.waits()
						return
					}
					if n.Worker() != 0 {
						t.Fatalf("it holds worker %d when the clock has caught up, want 0: %+v", n.Worker(), n.State())
					}
					time.Sleep(7 * time.Second) // it rests
					synctest.Wait()
					n.take(0)
					var want []string
					if c.reported {
						want = append(want, "skewed")
					}
					if !away {
						want = append(want, "acquired 0")
					}
					if c.reported {
						want = append(want, "recovered: skewed")
					}
					n.wantEvents(want...)
				})
			})
		}
	}
}

// TestStartAfterCrash: what the last run had of time beyond its clock, and what is added when a slot of the file
// cannot be read, is no clock that is behind.
func TestStartAfterCrash(t *testing.T) {
	for _, away := range []bool{false, true} {
		for slot := range 3 { // the third is neither of the two
			bubble(t, func(t *testing.T, w *world) {
				n := w.start()
				n.take(0)
				if s, _ := n.file.Saved(); s.Ceiling != origin+2000 {
					t.Fatalf("the ceiling is %d ms ahead, want as much as it can be", s.Ceiling-origin)
				}
				d := n.kill()
				change(t, d, slot*slotSize+100, []byte("damaged"))
				n = n.again(d, func(s *setup) { s.down = away })
				if n.Worker() != 0 {
					t.Errorf("slot %d, away %v: it holds worker %d, want 0: %+v", slot, away, n.Worker(), n.State())
				}
				rest := 2000 * ms
				if slot < 2 {
					rest += 4000 * ms
				}
				time.Sleep(rest)
				n.take(0)
			})
		}
	}
}

// TestStartAfterStep: a time that was never believed is not on record.
func TestStartAfterStep(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) {
			s.PeerClocks = w.later(func(context.Context) []time.Duration { return []time.Duration{-time.Hour} })
		})
		n.run(10 * time.Second)
		w.clock.step(time.Hour)
		n.run(10 * time.Second) // it reports
		d := n.kill()
		w.clock.step(-time.Hour)
		n.again(d).issues(0, 2*time.Second)
	})
}

// TestStartComparesClock: each start compares its clock with the others', and takes a worker when at least half of
// them agree with it.
func TestStartComparesClock(t *testing.T) {
	type peers = []time.Duration
	for name, c := range map[string]struct {
		peers   peers
		maxSkew time.Duration
		off     time.Duration // reported, and no worker is taken; 0: neither
	}{
		"nobody answers":               {},
		"all are right":                {peers: peers{0, 10 * ms, -10 * ms}},
		"as far as may be":             {peers: peers{time.Second, time.Second}},
		"too far":                      {peers: peers{1001 * ms}, off: 1001 * ms},
		"too far behind":               {peers: peers{-1001 * ms}, off: -1001 * ms},
		"one wrong of two":             {peers: peers{0, time.Hour}},
		"two wrong of two":             {peers: peers{-time.Hour, -time.Hour}, off: -time.Hour},
		"one wrong of five":            {peers: peers{0, 5 * ms, time.Hour, -5 * ms, 3 * ms}}, // their average is 12 min
		"three wrong of five":          {peers: peers{time.Hour, 0, 5 * ms, time.Hour, time.Hour}, off: time.Hour},
		"more may be":                  {peers: peers{time.Minute}, maxSkew: time.Minute},
		"more than may be":             {peers: peers{time.Minute + ms}, maxSkew: time.Minute, off: time.Minute + ms},
		"as far as a clock can be off": {peers: peers{1<<63 - 1, 1<<63 - 1}, off: (1<<63 - 1) / ms * ms},
	} {
		for _, kind := range []string{"a new node", "a new node, one to take over", "a restart", "a restart, the registry away"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					d := snowflaketest.NewDisk()
					switch kind {
					case "a new node, one to take over":
						w.start(as("b")).kill()
						time.Sleep(time.Hour)
					case "a restart", "a restart, the registry away":
						d = w.start().stop()
					}
					var asked, right atomic.Int64
					start := func() *node {
						return w.start(on(d), func(s *setup) {
							s.down = kind == "a restart, the registry away"
							s.MaxClockSkew = c.maxSkew
							s.PeerClocks = peerClocks(func(context.Context) []time.Duration {
								if asked.Add(1); right.Load() > 0 {
									return peers{0}
								}
								return c.peers
							})
						})
					}
					if c.off == 0 {
						n := start()
						n.issues(0, 0)
						n.run(30 * time.Second)
						if n := asked.Load(); n != 1 {
							t.Errorf("the peers were asked %d times", n)
						}
						return
					}
					n := w.untouched(start)
					now := w.clock.read().Wall
					n.wantEvent(snowflake.ClockSkewed{Now: now, Peers: now + c.off.Milliseconds(), Threshold: cmp.Or(c.maxSkew, time.Second).Milliseconds()})
					n.waits(c.off.Abs().String(), fmt.Sprintf("of %d agree", len(c.peers)), "clock right")
					time.Sleep(2 * time.Minute)
					n.waits()
					n.newEvents()
					right.Store(1)
					n.registry.away(false)
					time.Sleep(1500 * ms) // the longest pause between two attempts
					n.run(10 * time.Second)
					n.wantEvents("acquired 0", "recovered: skewed")
				})
			})
		}
	}
}

// TestStartIsOver: a generator that has had a worker in this run compares its clock with the others' no more: not when
// it takes another worker. One that lost its worker while it was stopped does.
func TestStartIsOver(t *testing.T) {
	for _, down := range []bool{false, true} { // the registry, at the start
		bubble(t, func(t *testing.T, w *world) {
			n := w.start()
			n.run(time.Minute)
			var off atomic.Int64
			asks := func(s *setup) {
				s.PeerClocks = peerClocks(func(context.Context) []time.Duration { return []time.Duration{time.Duration(off.Load())} })
			}
			n = n.again(n.stop(), asks, func(s *setup) { s.down = down })
			n.run(2 * time.Second)
			off.Store(int64(time.Hour))
			w.thief(0)
			w.clock.step(-time.Hour)
			n.registry.away(false)
			time.Sleep(5 * time.Second)
			n.refused(snowflake.ErrClockBackwards)
			if n.Worker() != 1 {
				t.Errorf("it holds worker %d, want 1", n.Worker())
			}
			time.Sleep(time.Hour)
			n.run(time.Minute)
			d := n.stop()
			w.memory.Wipe()
			n.again(d, asks).waits("1h0m0s behind")
		})
	}
}

// TestStartAfterClockAhead: the clock was ahead in the last run, and nobody was there to say so. If others agree with
// the clock now, the generator takes another worker. The old one is not used before its reservation has ended.
func TestStartAfterClockAhead(t *testing.T) {
	for _, down := range []bool{false, true} { // the registry, at the start
		for _, alone := range []bool{false, true} {
			bubble(t, func(t *testing.T, w *world) {
				w.clock.step(time.Hour)
				n := w.start()
				n.run(time.Minute)
				reserved := w.record(0).ReservedUntil
				d := n.kill()
				w.clock.step(-time.Hour)
				n = w.start(on(d), func(s *setup) {
					s.down = down
					if !alone {
						s.PeerClocks = peerClocks(func(context.Context) []time.Duration { return []time.Duration{10 * ms} })
					}
				})
				if alone || down {
					if n.waits("last time on record"); !errors.Is(n.State().Err, snowflake.ErrClockBackwards) {
						t.Errorf("the state is %v", n.State().Err)
					}
				}
				if alone {
					time.Sleep(time.Hour + 2*time.Minute)
					n.registry.away(false)
					time.Sleep(7 * time.Second)
					n.issues(0, 0)
					return
				}
				n.registry.away(false)
				time.Sleep(1500 * ms) // the longest pause between two attempts
				n.run(time.Minute)
				if p := n.issues(1, 0); p.UnixMS != w.clock.right() {
					t.Errorf("an ID has the time %d, want %d", p.UnixMS, w.clock.right())
				}
				n.wantEvents("skewed", "acquired 1", "recovered: skewed")
				if r := w.record(0); r.ReservedUntil != reserved {
					t.Errorf("worker 0 is reserved until %d, want %d", r.ReservedUntil, reserved)
				}
			})
		}
	}
}

// TestStartAmidAnswers: a start waits for peers that do not answer for a second, and then has time left for the
// registry in the same attempt. What happens before they have answered counts.
func TestStartAmidAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		ahead     time.Duration  // of the clock, when the peers are asked
		meanwhile func(w *world) // what happens before they have answered
		refused   bool
	}{
		"the clock is set right": {ahead: -time.Hour, meanwhile: func(w *world) { w.clock.step(time.Hour) }},
		"the clock is set wrong": {meanwhile: func(w *world) { w.clock.step(-time.Hour) }, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.clock.step(c.ahead)
				var asked atomic.Bool
				n := w.start(func(s *setup) {
					s.PeerClocks = peerClocks(func(context.Context) []time.Duration {
						off := -time.Duration(w.clock.read().Wall-w.clock.right()) * ms
						if !asked.Swap(true) {
							time.Sleep(100 * ms)
							c.meanwhile(w)
						}
						return []time.Duration{off}
					})
				})
				time.Sleep(time.Second)
				if c.refused {
					n.waits(" behind the ")
				} else {
					n.issues(0, 0)
				}
			})
		})
	}
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) {
			s.slow = 200 * ms
			s.PeerClocks = peerClocks(func(ctx context.Context) []time.Duration { <-ctx.Done(); return nil })
		})
		n.wait(t.Context(), n.request(1), nil, 1400*ms)
		n.wantEvents("acquired 0")
	})
}

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
)

// stopped checks that the start was refused for a reason in which there are these words, that Run has ended, and
// that all requests hear of the reason.
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
// registry or, where that is away, in the file; further behind it is refused.
func TestStartBehind(t *testing.T) {
	for name, c := range map[string]struct {
		behind  time.Duration // of what is on record
		maxWait time.Duration
		refused bool
	}{
		"not at all":          {},
		"by 1 ms":             {behind: ms},
		"by 5 s":              {behind: 5 * time.Second},
		"by more":             {behind: 5*time.Second + ms, refused: true},
		"by what may be":      {behind: 300 * ms, maxWait: 300 * ms},
		"by more than may be": {behind: 301 * ms, maxWait: 300 * ms, refused: true},
		"by 290 years":        {behind: 290 * 365 * 24 * time.Hour, refused: true},
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
					recorded := w.record(0).Reported
					if s, _ := n.file.Saved(); away {
						recorded = s.Ceiling - 6000 // it was less than that ahead
					}
					w.clock.step(time.Duration(recorded-w.clock.read().Wall)*ms - c.behind)
					now := w.clock.read().Wall
					start := func() *node {
						return n.again(d, func(s *setup) { s.down, s.MaxClockWait = away, c.maxWait })
					}
					switch {
					case c.refused:
						n = w.untouched(start)
						n.wantEvent(snowflake.ClockSkewed{Now: now, Recorded: recorded, Threshold: cmp.Or(c.maxWait, 5*time.Second)})
						n.stopped(c.behind.Truncate(ms).String(), "--node", time.UnixMilli(now).UTC().Format(snowflake.TimeFormat),
							time.UnixMilli(recorded).UTC().Format(snowflake.TimeFormat))
						if len(n.events) != 1 {
							t.Errorf("the events were %v", n.events)
						}
						return
					case c.behind > 0:
						n = w.untouched(start)
						time.Sleep(c.behind - ms)
						synctest.Wait()
						if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, snowflake.ErrClockBackwards) {
							t.Errorf("the error is %v, want %v in it", err, snowflake.ErrClockBackwards)
						}
						n.wantEvents()
						time.Sleep(2 * ms)
						synctest.Wait()
					default:
						n = start()
					}
					if n.Worker() != 0 {
						t.Fatalf("it holds worker %d when the clock has caught up, want 0: %+v", n.Worker(), n.State())
					}
					time.Sleep(7 * time.Second) // it rests
					synctest.Wait()
					n.take(0)
					if away {
						n.wantEvents()
					} else {
						n.wantEvents("acquired 0")
					}
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

// TestStartOfNewNode: a generator that takes a worker of which it knows nothing compares its clock with the median of
// the others'.
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
		"too far":                      {peers: peers{1001 * ms}, off: 1001 * ms},
		"too far behind":               {peers: peers{-1001 * ms}, off: -1001 * ms},
		"one wrong of five":            {peers: peers{0, 5 * ms, time.Hour, -5 * ms, 3 * ms}}, // their average is 12 min
		"three wrong of five":          {peers: peers{time.Hour, 0, 5 * ms, time.Hour, time.Hour}, off: time.Hour},
		"two, and the mean is near":    {peers: peers{0, 2 * time.Second}},
		"two, and the mean is not":     {peers: peers{0, 2002 * ms}, off: 1001 * ms},
		"more may be":                  {peers: peers{time.Minute}, maxSkew: time.Minute},
		"more than may be":             {peers: peers{time.Minute + ms}, maxSkew: time.Minute, off: time.Minute + ms},
		"as far as a clock can be off": {peers: peers{1<<63 - 1, 1<<63 - 1}, off: 1<<63 - 2},
	} {
		for _, left := range []bool{false, true} { // a worker that another one released
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
					n.wantEvent(snowflake.ClockSkewed{Now: now, Peers: now + c.off.Milliseconds(), Threshold: cmp.Or(c.maxSkew, time.Second)})
					n.stopped(c.off.Abs().String(), fmt.Sprintf("%d answered", len(c.peers)), "clock right")
				})
			})
		}
	}
}

// TestStartIsOver: a generator that still has its worker does not ask what time it is. One that has had a worker in
// this run is not refused any more: not when it takes another, and not for its clock. One that lost its worker while
// it was stopped is as a new node.
func TestStartIsOver(t *testing.T) {
	for _, down := range []bool{false, true} { // the registry, at the start
		bubble(t, func(t *testing.T, w *world) {
			n := w.start()
			n.run(time.Minute)
			wrong := func(s *setup) {
				s.PeerClocks = func(context.Context) []time.Duration { return []time.Duration{time.Hour} }
			}
			n = n.again(n.stop(), wrong, func(s *setup) { s.down = down })
			n.run(2 * time.Second)
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
			n.again(d, wrong).stopped("1h0m0s behind")
		})
	}
}

// TestStartAfterLongWait: a generator that ran for a while without a worker, as the registry was away, is not ended
// by a refusal; it gets a worker when the reason is gone.
func TestStartAfterLongWait(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var off atomic.Int64
		off.Store(int64(2 * time.Second))
		n := w.start(down, func(s *setup) {
			s.PeerClocks = func(context.Context) []time.Duration { return []time.Duration{time.Duration(off.Load())} }
		})
		time.Sleep(2 * time.Minute)
		n.registry.away(false)
		time.Sleep(time.Minute)
		n.wantEvents("skewed")
		if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, snowflake.ErrRefused) || n.ran != nil {
			t.Errorf("a request is refused with %v; Run returned %v", err, n.ran)
		}
		off.Store(0)
		time.Sleep(1500 * ms) // the longest pause between two attempts
		n.run(10 * time.Second)
		n.wantEvents("acquired 0", "recovered: skewed")
	})
}

// TestStartAmidAnswers: a start waits for peers that do not answer for a second, and then has time left for the
// registry in the same attempt. What happens before they have answered counts.
func TestStartAmidAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		ahead     time.Duration  // of the clock, when the peers are asked
		meanwhile func(w *world) // what happens before they have answered
		refused   bool
	}{
		"the clock is set right":   {ahead: -time.Hour, meanwhile: func(w *world) { w.clock.step(time.Hour) }},
		"the clock is set wrong":   {meanwhile: func(w *world) { w.clock.step(-time.Hour) }, refused: true},
		"the process stands still": {ahead: 800 * ms, meanwhile: func(w *world) { w.clock.pass(time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.clock.step(c.ahead)
				var asked atomic.Bool
				n := w.start(func(s *setup) {
					s.PeerClocks = func(context.Context) []time.Duration {
						off := -time.Duration(w.clock.read().Wall-w.clock.right()) * ms
						if !asked.Swap(true) {
							time.Sleep(100 * ms)
							c.meanwhile(w)
						}
						return []time.Duration{off}
					}
				})
				time.Sleep(time.Second)
				if c.refused {
					n.stopped(" behind the ")
				} else {
					n.issues(0, 0)
				}
			})
		})
	}
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) {
			s.slow = 200 * ms
			s.PeerClocks = func(ctx context.Context) []time.Duration { <-ctx.Done(); return nil }
		})
		n.wait(t.Context(), n.request(1), nil, 1400*ms)
		n.wantEvents("acquired 0")
	})
}

package snowflake_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

const ms = time.Millisecond

// act is a moment of a test of the clock: time passes, the wall clock is set,
// and somebody asks for an ID.
type act struct {
	after time.Duration
	set   time.Duration // the wall clock, by so much
	// later it is set once more, while the request waits.
	later, laterSet time.Duration

	silent bool          // nobody asks
	wait   time.Duration // until the answer
	err    error         // of the request, and then of the state; nil: an ID
	ahead  time.Duration // of the ID's time, of a clock that nobody set
	events []string      // since the last act
}

func (w *world) act(n *node, a act) {
	w.t.Helper()
	time.Sleep(a.after)
	synctest.Wait()
	w.clock.step(a.set)
	if a.later > 0 {
		time.AfterFunc(a.later, func() { w.clock.step(a.laterSet) })
	}
	if !a.silent {
		ranges, took, err := n.try(1)
		if !errors.Is(err, a.err) || took != a.wait {
			w.t.Errorf("an ID: %v after %v, want %v after %v", err, took, a.err, a.wait)
		}
		if err == nil {
			if ahead := w.parts(ranges[0].First).UnixMS - w.clock.right(); ahead != a.ahead.Milliseconds() {
				w.t.Errorf("its time is %d ms ahead, want %v", ahead, a.ahead)
			}
		}
	}
	if err := n.State().Err; !errors.Is(err, a.err) || a.err == nil && err != nil {
		w.t.Errorf("the state is %v, want %v", err, a.err)
	}
	if got := n.newEvents(); !slices.Equal(got, a.events) {
		w.t.Errorf("the events were %q, want %q", got, a.events)
	}
}

// TestClockRules sets the clock of a generator that has run for a minute and
// has just issued an ID.
func TestClockRules(t *testing.T) {
	back := snowflake.ErrClockBackwards
	const recovered = "recovered: backwards"
	const in2055 = 29 * 365 * 24 * time.Hour
	type peers = []time.Duration // how far their clocks are ahead of one that nobody set
	for name, c := range map[string]struct {
		acts    []act
		peers   peers
		most    time.Duration // a reservation may be ahead of one made with a clock that nobody set
		maxBack time.Duration
		maxSkew time.Duration
	}{
		"back 5 ms, and again": {acts: []act{
			{set: -5 * ms, wait: 10 * ms, ahead: -5 * ms, events: []string{"waited: back 5 ms", recovered}},
			{set: -4 * ms, wait: 8 * ms, ahead: -9 * ms, events: []string{"waited: back 4 ms", recovered}},
		}},
		"back no further than the last ID": {acts: []act{
			{after: 10 * ms, set: -9 * ms, ahead: -9 * ms},
			{after: time.Second, set: -999 * ms, ahead: -9*ms - 999*ms},
		}},
		"back 6 ms": {acts: []act{
			{set: -6 * ms, err: back, events: []string{"refused: back 6 ms"}},
			{after: 5 * ms, err: back},
			{after: 1 * ms, ahead: -6 * ms, events: []string{recovered}},
			{after: ms, ahead: -6 * ms},
		}},
		"back 1 h": {acts: []act{
			{set: -time.Hour, err: back, events: []string{"refused: back 3600000 ms"}},
			{after: 30 * time.Minute, err: back},
			{after: 30*time.Minute - ms, err: back},
			{after: 2 * ms, ahead: -time.Hour, events: []string{recovered}},
		}},
		"back 1 min, seen by nobody who asks": {acts: []act{
			{set: -time.Minute, silent: true, err: back, events: []string{"refused: back 60000 ms"}},
			{after: 50 * time.Second, silent: true, err: back},
			{after: 10 * time.Second, silent: true, events: []string{recovered}},
			{after: ms, ahead: -time.Minute},
		}},
		"back 3 ms, and 1 min during the wait": {acts: []act{
			{set: -3 * ms, later: 2 * ms, laterSet: -time.Minute, wait: 6 * ms, err: back,
				events: []string{"waited: back 3 ms", "refused: back 59997 ms"}},
			{after: time.Minute, ahead: -time.Minute - 3*ms, events: []string{recovered}},
		}},
		"back 3 ms, and still back after the wait": {acts: []act{
			{set: -3 * ms, later: 5 * ms, laterSet: -4 * ms, wait: 6 * ms, err: back,
				events: []string{"waited: back 3 ms", "refused: back 1 ms"}},
			{after: 2 * ms, ahead: -7 * ms, events: []string{recovered}},
		}},
		"back 300 ms, and more is waited for": {maxBack: 300 * ms, acts: []act{
			{set: -300 * ms, wait: 600 * ms, ahead: -300 * ms, events: []string{"waited: back 300 ms", recovered}},
			{set: -301 * ms, err: back, events: []string{"refused: back 301 ms"}},
			{after: 302 * ms, ahead: -601 * ms, events: []string{recovered}},
		}},

		"forward 1 h, most of the peers agree": {peers: peers{time.Hour, 0, time.Hour - time.Second}, most: time.Hour, acts: []act{
			{after: ms, set: time.Hour},
			{after: 500 * ms, ahead: time.Hour}, // though so much was not reserved
			{after: time.Minute, ahead: time.Hour},
		}},
		"forward 1.1 s, the peers do not agree": {peers: peers{0, 5 * ms, -10 * ms}, acts: []act{
			{after: ms, set: 1100 * ms},
			{after: 500 * ms, events: []string{"skewed"}},
			{after: 5 * time.Minute},
			{set: -1100 * ms},
			{after: 500 * ms, events: []string{"recovered: skewed"}},
			{after: time.Minute},
		}},
		"forward 1 h, and only one of the peers agrees": {peers: peers{time.Hour, 0, 0}, acts: []act{
			{after: ms, set: time.Hour},
			{after: 500 * ms, events: []string{"skewed"}},
			{after: 5 * time.Minute},
		}},
		"forward 1.1 s, there are no peers": {most: 1100 * ms, acts: []act{
			{after: ms, set: 1100 * ms},
			{after: 9900 * ms},
			{after: 600 * ms, events: []string{"skewed"}, ahead: 1100 * ms},
			{after: 500 * ms, events: []string{"recovered: skewed"}, ahead: 1100 * ms},
			{after: time.Minute, ahead: 1100 * ms},
		}},
		"forward 59 s, and that much is tolerated": {maxSkew: time.Minute, most: 59 * time.Second, acts: []act{
			{after: ms, set: 59 * time.Second, ahead: 59 * time.Second},
			{after: ms, set: 61 * time.Second, ahead: 59 * time.Second},
		}},
		"forward 1 h, and back before anybody believed it": {acts: []act{
			{after: ms, set: time.Hour},
			{after: 9 * time.Second},
			{set: -time.Hour},
			{after: 9 * time.Second, set: time.Hour},
			{after: 9 * time.Second}, // it was not this one that lasted
			{set: -time.Hour},
			{after: time.Minute},
		}},
		"2055 for 3 s": {acts: []act{
			{after: ms, set: in2055},
			{after: time.Second},
			{after: 2 * time.Second, set: -in2055},
			{after: time.Minute},
		}},
		"2055 for long, the peers do not agree": {peers: peers{0}, acts: []act{
			{after: ms, set: in2055},
			{after: 500 * ms, events: []string{"skewed"}},
			{after: 5 * time.Minute},
			{set: -in2055},
			{after: 500 * ms, events: []string{"recovered: skewed"}},
		}},
		"a small step that is doubted lends its time to no larger one": {most: 24*time.Hour + 2*time.Second, acts: []act{
			{after: ms, set: 2 * time.Second},
			{after: 9 * time.Second, set: 24 * time.Hour},
			{after: 9 * time.Second},
			{after: 3 * time.Second, ahead: 24*time.Hour + 2*time.Second, events: []string{"skewed", "recovered: skewed"}},
		}},
		"2055, and then too far back": {acts: []act{
			{after: ms, set: in2055},
			{after: time.Second, set: -in2055 - time.Hour, err: back, events: []string{"refused: back 3599000 ms"}},
			{after: 30 * time.Second, set: time.Hour, events: []string{recovered}},
		}},
		"the machine slept for 8 h, and the peers did not": {peers: peers{8 * time.Hour}, most: 8 * time.Hour, acts: []act{
			{after: ms, set: 8 * time.Hour}, // the monotonic clock stood
			{after: 500 * ms, ahead: 8 * time.Hour},
			{after: time.Minute, ahead: 8 * time.Hour},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start(func(s *setup) {
					s.MaxBack, s.MaxClockSkew = c.maxBack, c.maxSkew
					s.PeerClocks = w.later(func(context.Context) (ahead []time.Duration) {
						for _, p := range c.peers {
							ahead = append(ahead, p-time.Duration(w.clock.read().Wall-w.clock.right())*ms)
						}
						return ahead
					})
				})
				time.Sleep(time.Minute)
				n.take(0)
				n.wantEvents("acquired 0")
				for i, a := range c.acts {
					w.act(n, a)
					if t.Failed() {
						t.Fatalf("in act %d", i)
					}
				}
				// Nothing was burnt: not in the registry, nor on the disk.
				uptime := time.Since(w.clock.begin)
				latest := w.clock.right() + (max(time.Minute, uptime) + c.most).Milliseconds()
				for _, r := range n.registry.written() {
					if r.ReservedUntil > latest {
						t.Errorf("%v too much was reserved", time.Duration(r.ReservedUntil-latest)*ms)
					}
				}
				latest = w.clock.right() + c.most.Milliseconds() + 2000
				if s, ok := n.file.Saved(); !ok || s.Ceiling > latest {
					t.Errorf("the ceiling on disk is %v too high", time.Duration(s.Ceiling-latest)*ms)
				}
			})
		})
	}
}

// TestEndOfLayout: a year before there is an alert; at the end there is an
// error and nothing else, for good.
func TestEndOfLayout(t *testing.T) {
	const year = 365 * 24 * time.Hour
	t.Run("a year before", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.layout = snowflake.Layout{TimeBits: 40, WorkerBits: 11, SequenceBits: 12}
			w.layout.Epoch = origin + (year + time.Minute).Milliseconds() - 1<<40
			n := w.start()
			w.act(n, act{events: []string{"acquired 0"}})
			w.act(n, act{after: time.Minute - ms})
			w.act(n, act{after: 2 * ms, events: []string{"ending"}})
			w.act(n, act{after: time.Minute})
		})
	})
	t.Run("the end", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.layout = snowflake.Layout{TimeBits: 30, WorkerBits: 21, SequenceBits: 12}
			end := origin + (2 * time.Minute).Milliseconds()
			w.layout.Epoch = end - 1<<30
			n := w.start()
			w.act(n, act{events: []string{"acquired 0", "ending"}})
			w.act(n, act{after: 2*time.Minute - ms})
			large := n.request(1_000_000)
			n.wait(t.Context(), large, snowflake.ErrExhausted, ms)
			w.act(n, act{err: snowflake.ErrExhausted})
			w.act(n, act{after: 2 * time.Minute, err: snowflake.ErrExhausted})
			for _, r := range n.registry.written() {
				if r.ReservedUntil > end {
					t.Errorf("%d ms after the end were reserved", r.ReservedUntil-end)
				}
			}
			if got := n.State().ReservedUntil; got != end {
				t.Errorf("it is reserved until %d ms before the end", end-got)
			}
			// Nor after a restart.
			n = w.start(func(s *setup) { s.disk = n.stop() })
			w.act(n, act{err: snowflake.ErrExhausted, events: []string{"acquired 0"}})
			w.act(n, act{after: time.Minute, err: snowflake.ErrExhausted})
		})
	})
}

// TestClockEvents: the events and the error say how far the clock is off, and what was compared.
func TestClockEvents(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		time.Sleep(time.Second)
		last := n.take(0).UnixMS
		n.newEvents()
		w.clock.step(-time.Minute)
		time.Sleep(10 * ms)
		err := n.refused(snowflake.ErrClockBackwards)
		backwards, ok := errors.AsType[*snowflake.BackwardsError](err)
		if !ok || backwards.Offset != time.Minute-10*ms {
			t.Errorf("the error is %#v, want one with 59.99s", err)
		}
		n.wantEvent(snowflake.ClockBackwards{Worker: 0, Offset: 59_990, Last: last, Now: last - 59_990, Action: snowflake.Refused})
	})
	for _, peers := range [][]time.Duration{nil, {-2 * time.Second, -4 * time.Second, -3 * time.Second}} {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(func(s *setup) { s.PeerClocks = w.later(func(context.Context) []time.Duration { return peers }) })
			n.newEvents()
			time.Sleep(time.Second + ms)
			w.clock.step(time.Hour)
			time.Sleep(11 * time.Second)
			synctest.Wait()
			got, ok := n.events[0].(snowflake.ClockSkewed)
			if !ok || got.Now-got.Expected != time.Hour.Milliseconds() || got.Threshold != 1000 {
				t.Errorf("the events were %+v, want 1h and 1s", n.events)
			}
			if peers == nil && got.Peers != 0 || peers != nil && got.Peers != got.Now-3000 {
				t.Errorf("the peers' clocks are reported as %d, now is %d", got.Peers, got.Now)
			}
		})
	}
}

// later are peers that are not there yet when the test begins.
func (w *world) later(ahead func(context.Context) []time.Duration) func(context.Context) []int64 {
	return peerClocks(func(ctx context.Context) []time.Duration {
		if w.clock.right() == origin {
			return nil
		}
		return ahead(ctx)
	})
}

// peerClocks are peers whose clocks are ahead by so much.
func peerClocks(ahead func(context.Context) []time.Duration) func(context.Context) []int64 {
	return func(ctx context.Context) (inMS []int64) {
		for _, d := range ahead(ctx) {
			inMS = append(inMS, d.Milliseconds())
		}
		return inMS
	}
}

// TestPauseWhilePeersAreAsked: peers that seem to agree because the process stood still meanwhile have not agreed.
func TestPauseWhilePeersAreAsked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var asked atomic.Bool
		n := w.start(func(s *setup) {
			s.PeerClocks = w.later(func(context.Context) []time.Duration {
				if asked.Swap(true) {
					return []time.Duration{-8 * time.Second}
				}
				time.Sleep(16 * time.Second) // they are compared halfway
				return []time.Duration{0}
			})
		})
		w.act(n, act{after: time.Minute + ms, set: 8 * time.Second, events: []string{"acquired 0"}})
		w.act(n, act{after: time.Minute, events: []string{"skewed"}})
	})
}

// TestSetWhilePeersAreAsked: peers that agree with a clock do not agree with what it is set to before they have
// answered.
func TestSetWhilePeersAreAsked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) {
			s.PeerClocks = w.later(func(context.Context) []time.Duration {
				agree := time.Hour - time.Duration(w.clock.read().Wall-w.clock.right())*ms
				time.Sleep(time.Second)
				return []time.Duration{agree}
			})
		})
		w.act(n, act{after: time.Minute + ms, set: time.Hour, events: []string{"acquired 0"}})
		w.act(n, act{after: 700 * ms, set: 29 * 365 * 24 * time.Hour})
		w.act(n, act{after: 500 * ms}) // that was their answer
		w.act(n, act{after: time.Minute, events: []string{"skewed"}})
	})
}

// TestPeersVanish: peers that did not agree, and then are not heard of, have not agreed; nor has nobody, before that
// has lasted.
func TestPeersVanish(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var vanished atomic.Bool
		n := w.start(func(s *setup) {
			s.PeerClocks = w.later(func(context.Context) []time.Duration {
				if vanished.Load() {
					return nil
				}
				return []time.Duration{-time.Hour}
			})
		})
		w.act(n, act{after: time.Minute + ms, set: time.Hour, events: []string{"acquired 0"}})
		w.act(n, act{after: 30 * time.Second, events: []string{"skewed"}})
		vanished.Store(true)
		w.act(n, act{after: 9 * time.Second})
		vanished.Store(false)
		w.act(n, act{after: time.Second})
		vanished.Store(true)
		w.act(n, act{after: 9 * time.Second})
		w.act(n, act{after: 5 * time.Second, ahead: time.Hour, events: []string{"recovered: skewed"}})
	})
}

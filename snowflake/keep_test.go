package snowflake_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/snowflake"
)

func TestFirstStart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) { s.FirstWorker, s.LastWorker = 5, 6 })
		if got := n.take(0); got.Worker != 5 || got.UnixMS != origin {
			t.Errorf("the first ID has %+v, want worker 5 now", got)
		}
		n.wantEvents("acquired 5")
		until := origin + time.Minute.Milliseconds()
		if s := n.State(); s != (snowflake.State{Worker: 5, ReservedUntil: until}) || n.Worker() != 5 {
			t.Errorf("the state is %+v", s)
		}
		e := w.record(5)
		if e.Incarnation == "" {
			t.Error("the record has no incarnation")
		}
		want := snowflake.Record{Worker: 5, Node: "a", Incarnation: e.Incarnation, ReservedUntil: until, Acquired: origin, Reported: origin}
		if e.Record != want {
			t.Errorf("the record is %+v, want %+v", e.Record, want)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		want.ReservedUntil, want.Reported = until+3000, origin+3000
		if e := w.record(5); e.Record != want {
			t.Errorf("reported was %+v, want %+v", e.Record, want)
		}
	})
}

// TestRestart: the same generator goes on with its worker soon, and never where
// it has been.
func TestRestart(t *testing.T) {
	const run, grace = 40*time.Second + 100*ms, 30 * time.Second
	for name, c := range map[string]struct {
		killed bool
		pause  time.Duration
		down   bool          // the registry, at the restart
		rest   time.Duration // at most
		err    error         // instead
	}{
		"at once":                               {rest: ms},
		"after a while":                         {pause: 3 * time.Second},
		"at once, the registry away":            {rest: ms, down: true},
		"within the grace, the registry away":   {pause: grace - 11*time.Second, down: true},
		"after the grace, the registry away":    {pause: grace + ms, down: true, err: snowflake.ErrNoWorker},
		"after the grace":                       {pause: 20 * time.Minute},
		"killed, at once":                       {killed: true, rest: 2 * time.Second},
		"killed, within 3 s":                    {killed: true, pause: 2 * time.Second},
		"killed, at once, the registry away":    {killed: true, rest: 2 * time.Second, down: true},
		"killed, within 3 s, the registry away": {killed: true, pause: 2 * time.Second, down: true},
		"killed, reserved, the registry away":   {killed: true, pause: 45 * time.Second, down: true},
		"killed, not reserved, registry away":   {killed: true, pause: time.Minute, down: true, err: snowflake.ErrNoWorker},
		"killed, not reserved, taken by nobody": {killed: true, pause: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start(func(s *setup) { s.Grace = grace })
				n.run(run)
				n.wantEvents("acquired 0")
				last := n.last
				end := n.stop
				if c.killed {
					end = n.kill
				}
				d := end()
				time.Sleep(c.pause)
				n = w.start(on(d), func(s *setup) { s.down = c.down })
				if c.err != nil {
					n.refused(c.err)
					if got := n.Worker(); got != -1 {
						t.Errorf("it holds worker %d", got)
					}
					return
				}
				n.last = last
				if err := n.State().Err; c.rest > ms && !errors.Is(err, snowflake.ErrNoWorker) {
					t.Errorf("the state is %v while it rests", err)
				}
				ranges, took, err := n.try(1)
				if err != nil || took > c.rest || w.parts(ranges[0].First).Worker != 0 {
					t.Errorf("after the restart: %v, %v after %v; want one of worker 0 within %v", ranges, err, took, c.rest)
				}
				n.run(4 * time.Second)
				if c.down {
					n.wantEvents()
					n.registry.away(false)
					n.run(10 * time.Second)
				}
				n.wantEvents("acquired 0")
			})
		})
	}
}

// TestRestartAgainAndAgain: a generator that crashes in a loop keeps its one
// worker, whether the registry is there or not.
func TestRestartAgainAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		random := allocatortest.Seed(t)
		n := w.start()
		n.run(30 * time.Second)
		for range 40 {
			last, d := n.last, n.kill()
			n = w.start(on(d), func(s *setup) { s.down = random.IntN(2) == 0 })
			n.last = last
			// Before, while and after it rests.
			time.Sleep(time.Duration(random.Int64N(5)) * time.Second / 2)
			if ranges, took, err := n.try(1); err != nil || took > 2*time.Second {
				t.Fatalf("%v, %v after %v", ranges, err, took)
			}
			n.registry.away(false)
			time.Sleep(2 * time.Second)
		}
		if all := w.memory.Snapshot(); len(all) != 1 {
			t.Errorf("it used %d workers: %v", len(all), all)
		}
	})
}

// TestReservation: how far ahead is reserved grows with the time since the
// start.
func TestReservation(t *testing.T) {
	for _, c := range []struct{ uptime, reserve, want time.Duration }{
		{0, 0, time.Minute},
		{30 * time.Second, 0, time.Minute},
		{2 * time.Minute, 0, 2 * time.Minute},
		{time.Hour, 0, time.Hour},
		{time.Hour, 30 * time.Minute, 30 * time.Minute},
		{25 * time.Hour, 0, 24 * time.Hour},
		{0, 10 * time.Second, 10 * time.Second},
		{time.Minute, 10 * time.Second, 10 * time.Second},
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

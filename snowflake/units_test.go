package snowflake_test

import (
	"errors"
	"math/bits"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// coarse is a layout of 4 IDs in each unit of time. Its units begin when those of a clock's seconds do.
func coarse(unit time.Duration) snowflake.Layout {
	return snowflake.Layout{Epoch: 1_600_000_000_000, TimeBits: 42 - bits.Len64(uint64(unit.Milliseconds())), WorkerBits: 10, SequenceBits: 2}.In(unit)
}

// inUnits is a bubble with a coarse layout.
func inUnits(t *testing.T, unit time.Duration, f func(t *testing.T, w *world)) {
	bubble(t, func(t *testing.T, w *world) {
		w.layout = coarse(unit)
		f(t, w)
	})
}

// What waits is bounded by what is made in the longest wait: 12 IDs in 3 s. It waits no longer than that, also if that
// is shorter than a unit.
func TestUnitQueue(t *testing.T) {
	inUnits(t, time.Second, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) { s.MaxWait = 300 * ms })
		time.Sleep(2*time.Second + 250*ms)
		n.take(0)
		n.wait(t.Context(), n.request(4), snowflake.ErrTimedOut, 300*ms)
		n.refuses(5, snowflake.ErrBatchTooLarge)
		n.refuses(0, snowflake.ErrBadCount)
	})
	inUnits(t, time.Second, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) { s.slow = time.Second })
		n.request(5)
		n.request(7)
		n.refuses(1, snowflake.ErrOverloaded)
		n.refuses(13, snowflake.ErrBatchTooLarge)
	})
}

// A clock that goes back within a unit holds nothing up. One that goes back behind the beginning of the
// last ID's unit is behind by the time up to that beginning.
func TestUnitClockBack(t *testing.T) {
	for name, c := range map[string]struct {
		at, back time.Duration // after the beginning of a unit
		wait     time.Duration
		events   []string
		err      error
	}{
		"within the unit":           {500 * ms, 400 * ms, 0, nil, nil},
		"to its beginning":          {500 * ms, 500 * ms, 0, nil, nil},
		"3 ms behind its beginning": {2 * ms, 5 * ms, 6 * ms, []string{"waited: back 3 ms", "recovered: backwards"}, nil},
		"far behind its beginning":  {500 * ms, 600 * ms, 0, []string{"refused: back 100 ms"}, snowflake.ErrClockBackwards},
	} {
		t.Run(name, func(t *testing.T) {
			inUnits(t, time.Second, func(t *testing.T, w *world) {
				n := w.start()
				time.Sleep(5*time.Second + c.at)
				n.take(0)
				n.newEvents()
				w.clock.step(-c.back)
				_, took, err := n.try(1)
				if !errors.Is(err, c.err) || took != c.wait {
					t.Errorf("%v after %v, want %v after %v", err, took, c.err, c.wait)
				}
				n.wantEvents(c.events...)
			})
		})
	}
}

// A restart within a unit leaves the rest of it out: what was issued in it is not known.
func TestRestartWithinUnit(t *testing.T) {
	for _, unit := range snowflake.Units() {
		for i := range 4 {
			killed, away := i&1 > 0, i&2 > 0
			inUnits(t, unit, func(t *testing.T, w *world) {
				time.Sleep(123 * ms) // amid a second
				n := w.start()
				time.Sleep(5*time.Second + unit/10)
				synctest.Wait()
				last, most, end := n.take(0).UnixMS, unit, n.stop
				if killed {
					most, end = 2*time.Second+ms, n.kill
				}
				n = n.again(end(), func(s *setup) { s.down = away })
				if got := n.issues(0, most).UnixMS; got <= last {
					t.Errorf("unit %v, killed %v, away %v: the first ID has the time %d, and the last run's last %d", unit, killed, away, got, last)
				}
			})
		}
	}
}

// All that a generator reserves ends where a unit does. Its successor begins there, also if an operator has
// released the worker amid a unit.
func TestUnitsAreReservedWhole(t *testing.T) {
	for _, unit := range snowflake.Units() {
		inUnits(t, unit, func(t *testing.T, w *world) {
			few := func(s *setup) { s.LastWorker, s.Reserve, s.Grace = 0, 1234*ms, 1001*ms }
			n := w.start(as("first"), few)
			time.Sleep(4*time.Second + 321*ms)
			synctest.Wait()
			n.take(0)
			n.stop()
			for _, r := range n.registry.written() {
				if w.layout.UnitOf(r.ReservedUntil) != r.ReservedUntil {
					t.Errorf("unit %v: reserved until %d, amid a unit", unit, r.ReservedUntil)
				}
			}
			n = w.start(as("second"), few)
			time.Sleep(5 * time.Second)
			last := n.take(0).UnixMS
			time.Sleep(7 * ms)
			n.kill()
			e := w.record(0)
			released := snowflake.Release(e, w.clock.right()+7)
			released.ReservedUntil = last + 7 // amid the unit
			if _, err := w.memory.Put(t.Context(), released, e.Version); err != nil {
				t.Fatal(err)
			}
			n = w.start(as("third"), few)
			ranges, _, err := n.try(1)
			if err != nil || unit > 7*ms && w.parts(ranges[0].First).UnixMS <= last || w.parts(ranges[0].First).UnixMS < released.ReservedUntil {
				t.Errorf("unit %v: %v, %v; want IDs of units from %d on", unit, ranges, err, released.ReservedUntil)
			}
		})
	}
}

package snowflake

import (
	"testing"
	"time"
)

// TestGuard checks which time is used of what the clocks say. All is in ms, except that mono is in seconds.
func TestGuard(t *testing.T) {
	const (
		second = int64(1000)
		hour   = 3600 * second
		start  = 1_000_000_000 // when the monotonic clock is at 0
	)
	type look struct {
		mono, wall int64
		issued     int64 // the time of the last ID
		want       int64
		held       bool
	}
	for name, looks := range map[string][]look{
		"a step forward that is tolerated": {
			{1, start + 2000, start, start + 2000, false},
			{2, start + 4000, start + 2000, start + 4000, false}, // and the next one
		},
		"a step forward that is not": {
			{1, start + 1000, start, start + 1000, false},
			{1, start + 2001, start + 1000, start + 1000, true},
			{2, start + 3001, start + 1000, start + 2000, true},
			{7200, start + 2*hour + 1001, start + 2000, start + 2*hour, true}, // for good
		},
		"a step forward and back": {
			{1, start + hour, start, start + 1000, true},
			{2, start + 2000, start + 1000, start + 2000, false},
			{2, start + 3001, start + 2000, start + 2000, true}, // another one
		},
		"a step back, and the return": {
			{3600, start + hour, start + hour - 1, start + hour, false},
			{3601, start + second, start + hour, start + second, false},
			{3700, start + 100*second, start + hour, start + 100*second, false},
			{3701, start + hour + 101*second, start + hour, start + hour + 101*second, false},
		},
		"a step back, and a return that overshoots": {
			{3600, start + hour, start + hour - 1, start + hour, false},
			{3601, start + second, start + hour, start + second, false},
			{3602, start + hour + 4*second, start + hour, start + hour + 2*second, true},
		},
		"a step back until the clock has caught up": {
			{3600, start + hour, start + hour - 1, start + hour, false},
			{3601, start + second, start + hour, start + second, false},
			{7200, start + hour, start + hour, start + hour, false},
			// From then on this is the time, and the one of before a step forward.
			{7201, start + 2*hour + second, start + hour, start + hour + second, true},
		},
		"a step back behind no ID": {
			{3600, start + hour, start, start + hour, false},
			{3601, start + second, start, start + second, false},
			{3602, start + hour + 2*second, start + second, start + 2*second, true},
		},
		"the machine slept: the monotonic clock stood": {
			{10, start + 10*second, start + 9*second, start + 10*second, false},
			{10, start + 8*hour, start + 10*second, start + 10*second, true},
			{11, start + 8*hour + second, start + 10*second, start + 11*second, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := stepGuard{tolerance: time.Second, trusted: Reading{start, 0}}
			for i, l := range looks {
				got := g.at(Reading{l.wall, time.Duration(l.mono) * time.Second}, l.issued)
				if got != l.want || g.doubting != l.held {
					t.Errorf("look %d: the time is %+d, held %v; want %+d, %v", i, got-start, g.doubting, l.want-start, l.held)
				}
			}
		})
	}
}

// TestGuardSlewing: a clock that is corrected slowly is believed, though in the end it is far from the monotonic one;
// also while no ID is issued, as the clock is behind them.
func TestGuardSlewing(t *testing.T) {
	const start, day = 1_000_000_000, 24 * 3600
	for _, ppm := range []int64{500, -500, 100_000, -100_000} {
		for _, issued := range []int64{0, start + 10*day*1000} {
			g := stepGuard{tolerance: time.Second, trusted: Reading{start, 0}}
			for s := range int64(5 * day) {
				r := Reading{start + s*1000 + s*ppm/1000, time.Duration(s) * time.Second}
				if got := g.at(r, issued); got != r.Wall || g.doubting {
					t.Fatalf("%d ppm, %d: after %d s the time is %+d, want the clock's %+d; held: %v", ppm, issued, s, got-start, r.Wall-start, g.doubting)
				}
			}
		}
	}
}

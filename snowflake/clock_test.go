package snowflake

import (
	"testing"
)

// TestGuardSlewing: a clock that is corrected slowly is believed, though in the end it is far from the monotonic one;
// also while no ID is issued, as the clock is behind them.
func TestGuardSlewing(t *testing.T) {
	const start, day = 1_000_000_000, 24 * 3600
	for _, ppm := range []int64{500, -500, 100_000, -100_000} {
		for _, issued := range []int64{0, start + 10*day*1000} {
			g := stepGuard{tolerance: 1000, trusted: Reading{start, 0}}
			for s := range int64(5 * day) {
				r := Reading{start + s*1000 + s*ppm/1000, s * 1000}
				if got := g.at(r, issued); got != r.Wall || g.doubting {
					t.Fatalf("%d ppm, %d: after %d s the time is %+d, want the clock's %+d; held: %v", ppm, issued, s, got-start, r.Wall-start, g.doubting)
				}
			}
		}
	}
}

//go:build !race

package snowflake_test

import (
	"time"
)

// machineClock runs at a rate and is set by anybody.
type machineClock struct {
	w      *simWorld
	rate   float64
	ticks  time.Duration // at the true time since
	since  time.Duration
	offset time.Duration // of the wall clock
}

func newMachineClock(w *simWorld) *machineClock {
	return &machineClock{w: w, rate: pick(w, 1, 1, 1, 0.5, 0.999, 1.001, 2), offset: pick(w, 0, 0, w.upTo(10*time.Hour)-5*time.Hour)}
}

func (c *machineClock) mono() time.Duration {
	return c.ticks + time.Duration(float64(c.w.now-c.since)*c.rate)
}

func (c *machineClock) wall() int64 { return birth + (c.mono() + c.offset).Milliseconds() }

// until is how long it takes to the wall time ms.
func (c *machineClock) until(ms int64) time.Duration {
	return time.Duration(float64(ms-c.wall())/c.rate) * time.Millisecond
}

func (c *machineClock) setRate(rate float64) { c.ticks, c.since, c.rate = c.mono(), c.w.now, rate }

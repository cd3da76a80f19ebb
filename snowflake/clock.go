package snowflake

import "time"

// Reading is what a machine's clocks say at one moment.
type Reading struct {
	Wall int64         // Unix ms; people and NTP set it
	Mono time.Duration // since some moment of this process; only runs forward
}

// SystemClock returns the clock of this machine.
func SystemClock() func() Reading {
	start := time.Now()
	return func() Reading {
		now := time.Now()
		return Reading{now.UnixMilli(), now.Sub(start)}
	}
}

// guard keeps steps forward of the wall clock away from the IDs until somebody
// agrees with them: what was once issued in the year 2055 cannot be taken back.
// Until then time goes on from the last reading that was believed, at the
// monotonic clock's pace, so a step stops nothing.
type guard struct {
	tolerance time.Duration
	believed  Reading
	held      bool          // the wall clock is ahead and not believed
	since     time.Duration // Mono of when that began, or was last contradicted
	ahead     int64         // ms, at the last look
}

// at returns the time that may be used at the reading r, in Unix ms. issued is
// the time of the last ID.
func (g *guard) at(r Reading, issued int64) int64 {
	expected := g.believed.Wall + (r.Mono - g.believed.Mono).Milliseconds()
	ahead := r.Wall - expected
	if ahead > g.tolerance.Milliseconds() {
		if !g.held || ahead-g.ahead > g.tolerance.Milliseconds() { // another step must not be believed with the first
			g.held, g.since = true, r.Mono
		}
		g.ahead = ahead
		return expected
	}
	g.held = false
	// A clock that went back and is behind the IDs may return to where it was:
	// that is no step forward, so what is believed stays ahead of it meanwhile.
	if r.Wall >= issued || -ahead <= g.tolerance.Milliseconds() {
		g.believed = r
	}
	return r.Wall
}

// believe ends the doubt.
func (g *guard) believe(r Reading) { g.believed, g.held = r, false }

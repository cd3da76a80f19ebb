package snowflake

import "time"

// clockState is what is being done about a clock that went backwards.
type clockState int

const (
	clockFine clockState = iota
	clockWaiting
	clockRefusing
)

// lookBackLocked decides what to do about a clock that is behind the last ID:
// wait for twice the offset if it is small, else refuse until it has caught up.
func (g *Generator) lookBackLocked(r Reading, t int64) (wait time.Duration, err error) {
	offset := time.Duration(g.seq.ms-t) * time.Millisecond
	small := offset <= g.cfg.MaxBack
	switch {
	case g.clock == clockWaiting && small && r.Mono < g.pauseEnd:
		return g.pauseEnd - r.Mono, nil
	case offset <= 0:
		if g.clock != clockFine {
			g.clock = clockFine
			g.cfg.Notify(Recovered{g.lease.Worker, EpisodeBackwards})
		}
		return 0, nil
	case g.clock == clockFine && small:
		g.clock, wait = clockWaiting, 2*offset
		g.pauseEnd = r.Mono + wait
		g.cfg.Notify(ClockBackwards{g.lease.Worker, offset.Milliseconds(), g.seq.ms, t, Waited})
		return wait, nil
	case g.clock != clockRefusing:
		g.clock = clockRefusing
		g.cfg.Notify(ClockBackwards{g.lease.Worker, offset.Milliseconds(), g.seq.ms, t, Refused})
	}
	return 0, &BackwardsError{offset}
}

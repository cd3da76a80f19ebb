package snowflake

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// At a start nothing shows yet whether the clock is right: the guard only notices later how it moves. So a
// start compares the clock with what the last run put on record, and, if there was none, with the peers'
// clocks. Uniqueness does not need this, because it needs no right clock. The comparison keeps wrong times out
// of the IDs. And it keeps a generator from starting that could only refuse requests.

const (
	// askFor bounds how long the peers are asked for their clocks. An attempt to get a
	// worker needs the rest of its time for the registry.
	askFor = time.Second
	// comparedFor is how long a comparison counts while no worker can be had.
	comparedFor = 10 * time.Second
)

// starting reports whether no worker was held yet since Run began.
func (g *Generator) starting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.worker.started
}

// recorded is a time that the clock had reached when s was saved. The ceiling was at most
// ceilingAhead ahead of the clock then. If one slot of the file could not be read, slack was
// added to it. The file does not say how much of this there is, so all of it is taken off.
// So no restart after a crash is refused, or waits. The registry, if it answers, knows better.
func (s Saved) recorded() int64 { return s.Ceiling - restAtStart.Milliseconds() }

// checkRecorded checks at a start whether the clock is behind this generator's own last time
// on record. If it is a little behind, the start waits for it.
func (g *Generator) checkRecorded(recorded int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Clock().Wall
	if g.worker.started || now >= recorded {
		return nil
	}
	behind := millis(min(recorded-now, math.MaxInt64/int64(time.Millisecond)))
	if behind <= g.cfg.MaxClockWait {
		return fmt.Errorf("%w: it says %s, and this generator's last time on record is %s; no worker is used until the clock has caught up",
			&BackwardsError{behind}, text(now), text(recorded))
	}
	g.reportSkewed(ClockSkewed{Now: now, Recorded: recorded, Threshold: g.cfg.MaxClockWait})
	return fmt.Errorf("%w: its clock says %s, %v before its last time on record, %s; a start waits for at most %v (--max-clock-wait). "+
		"Set the clock right and start again, or start as a new node, which takes another worker (--node NEWNAME)",
		ErrRefused, text(now), behind, text(recorded), g.cfg.MaxClockWait)
}

// compareClock compares the clock with the peers' at a start, before this generator takes a
// worker of which it knows nothing. If no peer answers, its clock counts as right.
func (g *Generator) compareClock(ctx context.Context) error {
	r := g.cfg.Clock()
	if !g.starting() || r.Mono < g.keeper.comparedUntil {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, askFor)
	peers := g.cfg.PeerClocks(ask)
	cancel()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("asking the other generators for their clocks: %w", err)
	}
	now := g.cfg.Clock()
	if now.Mono-r.Mono > 2*askFor || now.setSince(r).Abs() > g.cfg.MaxClockSkew {
		return errors.New("the other generators were asked for their clocks, and meanwhile this one's was set or the process stood still")
	}
	if ahead := Median(peers); ahead.Abs() > g.cfg.MaxClockSkew {
		theirs := now.Wall + ahead.Milliseconds()
		g.reportSkewed(ClockSkewed{Now: now.Wall, Peers: theirs, Threshold: g.cfg.MaxClockSkew})
		side := "ahead of"
		if ahead > 0 {
			side = "behind"
		}
		return fmt.Errorf("%w: its clock says %s, %v %s the %s that is the median of the other generators' (%d answered); a new node may be off by %v (--max-clock-skew). "+
			"Set this machine's clock right and start again; if it is right, set theirs",
			ErrRefused, text(now.Wall), ahead.Abs(), side, text(theirs), len(peers), g.cfg.MaxClockSkew)
	}
	g.keeper.comparedUntil = now.Mono + comparedFor
	return nil
}

// reportSkewed reports once that the clock keeps the generator from starting. The start may be
// tried again and again.
func (g *Generator) reportSkewed(e ClockSkewed) {
	if !g.keeper.refusalReported {
		g.keeper.refusalReported = true
		g.cfg.Notify(e)
	}
}

// Median is the middle of durations, and 0 of none. It judges how far the peers' clocks are
// ahead, where Leaf's documents say average. One clock that is wrong by a day moves the average
// of a thousand by more than a minute. Then every right clock of a new node would be
// refused. The median is wrong only if half of the clocks are.
func Median(durations []time.Duration) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	n := len(sorted)
	return sorted[(n-1)/2]/2 + sorted[n/2]/2 // this way nothing overflows
}

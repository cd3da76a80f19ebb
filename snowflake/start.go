package snowflake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// At a start nothing shows yet whether the clock is right: the guard only notices later how it moves. So a
// start compares the clock with the peers' clocks, and with what the last run put on record. While the clock
// seems wrong, the generator takes no worker, and tries again. Uniqueness does not need this, because it needs no
// right clock. It keeps wrong times out of the IDs.

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

// compareClock compares the clock with the peers' at a start. If no peer answers, the clock counts as right.
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
		return errors.New("the other generators were asked for their clocks, and meanwhile this one's was set or the " +
			"process stood still")
	}
	near := g.near(peers)
	if 2*near < len(peers) { // half are enough: with its own clock, that is more than half
		ahead := Median(peers)
		theirs := now.Wall + ahead.Milliseconds()
		g.reportSkewed(ClockSkewed{Now: now.Wall, Peers: theirs, Threshold: g.cfg.MaxClockSkew})
		side := "ahead of"
		if ahead > 0 {
			side = "behind"
		}
		return fmt.Errorf("the clock differs from the other generators' clocks: it says %s, %v %s the %s that is their "+
			"median (%d of %d agree within %v, "+
			"--max-clock-skew); no worker is used until they agree. Set this machine's clock right; if it is right, set theirs",
			text(now.Wall), ahead.Abs(), side, text(theirs), near, len(peers), g.cfg.MaxClockSkew)
	}
	g.keeper.agreed, g.keeper.comparedUntil = near > 0, now.Mono+comparedFor
	return nil
}

// near is how many of the peers' clocks agree with this generator's.
func (g *Generator) near(peers []time.Duration) (n int) {
	for _, ahead := range peers {
		if ahead.Abs() <= g.cfg.MaxClockSkew {
			n++
		}
	}
	return n
}

// reportSkewed reports once that the clock keeps the generator from taking a worker.
func (g *Generator) reportSkewed(e ClockSkewed) {
	if !g.keeper.refusalReported {
		g.keeper.refusalReported = true
		g.cfg.Notify(e)
	}
}

// Median is the middle of durations, and 0 of none. It says how far the peers' clocks are
// ahead, where Leaf's documents say average. One clock that is wrong by a day moves the average
// of a thousand by more than a minute. The median is wrong only if half of the clocks are.
func Median(durations []time.Duration) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	n := len(sorted)
	return sorted[(n-1)/2]/2 + sorted[n/2]/2 // this way nothing overflows
}

package snowflake

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// At a start nobody knows yet whether the clock is right: the guard only tells
// later how it moves. What the clock may be compared with is what the last run
// has put on record, and, where there was none, the clocks of the others. This
// keeps no two IDs apart, which needs no right clock; it keeps wrong times out of
// them, and a generator that could only refuse requests from starting.

const (
	// askFor bounds how long the peers are asked for their clocks: an attempt to
	// get a worker has to have time left for the registry.
	askFor = time.Second
	// comparedFor is how long a comparison counts while the worker cannot be had.
	comparedFor = 10 * time.Second
)

// starting reports whether there was no worker yet since Run began.
func (g *Generator) starting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.leased
}

// recorded is a time that the clock had reached when s was saved. The ceiling was
// at most ceilingAhead ahead of the clock then, and if one slot of the file could not
// be read, at most slack was added to it since. As nobody knows how much of this there
// is, the least counts: so no restart after a crash is refused, or waits. The registry,
// where it answers, knows it better.
func (s Saved) recorded() int64 { return s.Ceiling - restAtStart.Milliseconds() }

// checkRecorded looks at a start whether the clock is behind the own last time
// that is on record. If it is not far behind, it is waited for.
func (g *Generator) checkRecorded(recorded int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Clock().Wall
	if g.leased || now >= recorded {
		return nil
	}
	behind := time.Duration(min(recorded-now, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	if behind <= g.cfg.MaxClockWait {
		return fmt.Errorf("%w: it says %s, and this generator's last time on record is %s; no worker is used until the clock has caught up",
			&BackwardsError{behind}, text(now), text(recorded))
	}
	g.tellSkewed(ClockSkewed{Now: now, Recorded: recorded, Threshold: g.cfg.MaxClockWait})
	return fmt.Errorf("%w: its clock says %s, %v before its last time on record, %s; a start waits for at most %v (--max-clock-wait). "+
		"Set the clock right and start again, or start as a new node, which takes another worker (--node NEWNAME)",
		ErrRefused, text(now), behind, text(recorded), g.cfg.MaxClockWait)
}

// compare asks the peers for the time, at a start, before this generator takes
// a worker of which it knows nothing. If nobody answers, its clock is as good as
// any.
func (g *Generator) compare(ctx context.Context) error {
	r := g.cfg.Clock()
	if !g.starting() || r.Mono < g.compared {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, askFor)
	peers := g.cfg.Peers(ask)
	cancel()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("asking the other generators for their clocks: %w", err)
	}
	now := g.cfg.Clock()
	took := now.Mono - r.Mono
	set := time.Duration(now.Wall-r.Wall)*time.Millisecond - took
	if took > 2*askFor || set.Abs() > g.cfg.MaxClockSkew {
		return errors.New("the other generators were asked for their clocks, and meanwhile this one's was set or the process stood still")
	}
	if ahead := Median(peers); ahead.Abs() > g.cfg.MaxClockSkew {
		theirs := now.Wall + ahead.Milliseconds()
		g.tellSkewed(ClockSkewed{Now: now.Wall, Peers: theirs, Threshold: g.cfg.MaxClockSkew})
		side := "ahead of"
		if ahead > 0 {
			side = "behind"
		}
		return fmt.Errorf("%w: its clock says %s, %v %s the %s that is the median of the other generators' (%d answered); a new node may be off by %v (--max-clock-skew). "+
			"Set this machine's clock right and start again; if it is right, set theirs",
			ErrRefused, text(now.Wall), ahead.Abs(), side, text(theirs), len(peers), g.cfg.MaxClockSkew)
	}
	g.compared = now.Mono + comparedFor
	return nil
}

// tellSkewed tells of a start that is refused for the clock, once: it may be tried
// again and again.
func (g *Generator) tellSkewed(e ClockSkewed) {
	if !g.refused {
		g.refused = true
		g.cfg.Notify(e)
	}
}

// Median is the middle of durations, 0 of none. How far the peers' clocks are ahead
// is judged by it, where Leaf's documents say average. But one clock that is wrong by
// a day pulls the average of a thousand by more than a minute, and then every honest
// newcomer would be refused; the median is wrong only when half of the clocks are.
func Median(durations []time.Duration) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	n := len(sorted)
	return sorted[(n-1)/2]/2 + sorted[n/2]/2 // this way nothing overflows
}

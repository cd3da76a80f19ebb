package snowflake

import (
	"context"
	"time"
)

// believeAlone is how long a step forward is doubted when there is nobody to ask.
const believeAlone = 10 * time.Second

// doubt settles, if it can, whether a step forward of the wall clock is to be
// believed: when most of the peers have the same time, or there are none and it has lasted.
func (g *Generator) doubt(ctx context.Context) {
	g.mu.Lock()
	r := g.cfg.Clock()
	expected := g.guard.at(r, g.seq.ms)
	held := g.guard.held
	if !held && g.skewed {
		g.skewed = false
		g.cfg.Notify(Recovered{g.workerLocked(), EpisodeSkewed})
	}
	g.mu.Unlock()
	if !held {
		return
	}
	peers := g.cfg.Peers(ctx)
	near := 0
	for _, ahead := range peers {
		if ahead.Abs() <= g.cfg.MaxClockSkew {
			near++
		}
	}
	agreed := 2*near > len(peers) // most of them: one whose clock is wrong says nothing of ours

	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Clock()
	g.guard.at(now, g.seq.ms)
	set := time.Duration(now.Wall-r.Wall)*time.Millisecond - (now.Mono - r.Mono)
	if !g.guard.held || set.Abs() > g.cfg.MaxClockSkew {
		return // it went back meanwhile, or elsewhere: the peers spoke of another clock
	}
	alone := len(peers) == 0 && now.Mono-g.guard.since >= believeAlone
	if (alone || len(peers) > 0 && !agreed) && !g.skewed {
		g.skewed = true
		skewed := ClockSkewed{Now: r.Wall, Expected: expected, Threshold: g.cfg.MaxClockSkew}
		if len(peers) > 0 {
			skewed.Peers = r.Wall + Median(peers).Milliseconds()
		}
		g.cfg.Notify(skewed)
	}
	switch {
	case agreed || alone:
		g.guard.believe(now)
		select {
		case g.verify <- nil: // the reservation may end before the new time
		default: // it is extended in the next seconds
		}
	case len(peers) > 0:
		g.guard.since = now.Mono // one answer that is lost must not make it alone
	}
}

package snowflake

import (
	"context"
	"slices"
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
	held, since := g.guard.held, g.guard.since
	if !held && g.skewed {
		g.skewed = false
		g.cfg.Notify(Recovered{g.workerLocked(), EpisodeSkewed})
	}
	g.mu.Unlock()
	if !held {
		return
	}
	peers := g.cfg.Peers(ctx)
	slices.Sort(peers)
	var median time.Duration
	agreed := false
	if len(peers) > 0 {
		// The median, because one peer whose clock is wrong says nothing of ours.
		median = peers[len(peers)/2]
		agreed = median.Abs() <= g.cfg.MaxClockSkew
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Clock()
	if g.guard.at(now, g.seq.ms); !g.guard.held || g.guard.since != since {
		return // it went back meanwhile
	}
	alone := len(peers) == 0 && now.Mono-since >= believeAlone
	if (alone || len(peers) > 0 && !agreed) && !g.skewed {
		g.skewed = true
		skewed := ClockSkewed{Now: r.Wall, Expected: expected, Threshold: g.cfg.MaxClockSkew}
		if len(peers) > 0 {
			skewed.Peers = r.Wall + median.Milliseconds()
		}
		g.cfg.Notify(skewed)
	}
	switch {
	case agreed || alone:
		g.guard.believe(now)
	case len(peers) > 0:
		g.guard.since = now.Mono // one answer that is lost must not make it alone
	}
}

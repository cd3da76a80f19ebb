package snowflake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrClockBackwards means that the clock is behind the last ID. It is over when the clock has
// caught up.
var ErrClockBackwards = errors.New("the clock went backwards")

// BackwardsError is an [ErrClockBackwards] that says how far.
type BackwardsError struct {
	Offset time.Duration // until the clock has caught up
}

func (e *BackwardsError) Error() string {
	return fmt.Sprintf("%v by %v", ErrClockBackwards, e.Offset)
}

// Unwrap makes the error match ErrClockBackwards.
func (e *BackwardsError) Unwrap() error { return ErrClockBackwards }

// Reading is what a machine's clocks say at one moment, in ms.
type Reading struct {
	Wall int64 // since 1970; people and NTP set it
	Mono int64 // since some moment of this process; only runs forward
}

// SystemClock returns the clock of this machine.
func SystemClock() func() Reading {
	start := time.Now()
	return func() Reading {
		now := time.Now()
		return Reading{now.UnixMilli(), now.Sub(start).Milliseconds()}
	}
}

// setSince returns by how much the wall clock was set since an earlier reading.
func (r Reading) setSince(earlier Reading) int64 {
	return r.Wall - earlier.Wall - (r.Mono - earlier.Mono)
}

// duration is how others see a length of time.
func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// text is a time for people.
func text(ms int64) string { return time.UnixMilli(ms).UTC().Format(TimeFormat) }

// clockState is what a generator knows about its clock. Generator.mu guards it.
type clockState struct {
	guard     stepGuard
	backwards backwards
	waitUntil int64 // Mono: the end of backwardsWaiting
	skewed    bool  // that it is not trusted was reported, and is not over
}

// timeLocked returns the time that may be used at the reading r, in Unix ms.
func (g *Generator) timeLocked(r Reading) int64 { return g.clock.guard.at(r, g.seq.ms) }

// stepGuard keeps a step forward of the wall clock out of the IDs until it is trusted: an ID
// of the year 2055 cannot be taken back. Until then time goes on from the last trusted
// reading at the pace of the monotonic clock, so a step stops nothing.
type stepGuard struct {
	tolerance int64
	trusted   Reading
	doubting  bool  // the wall clock is ahead and not trusted
	since     int64 // Mono of when that began, or was last contradicted
	ahead     int64 // at the last reading
}

// at returns the time that may be used at the reading r, in Unix ms. issued is the time of the last
// ID.
func (g *stepGuard) at(r Reading, issued int64) int64 {
	expected := g.trusted.Wall + r.Mono - g.trusted.Mono
	ahead := r.Wall - expected
	if ahead > g.tolerance {
		if !g.doubting || ahead-g.ahead > g.tolerance { // another step must not be trusted with the first
			g.doubting, g.since = true, r.Mono
		}
		g.ahead = ahead
		return expected
	}
	g.doubting = false
	// A clock that went back behind the IDs may return to where it was. That is no
	// step forward, so the trusted reading stays ahead of it meanwhile.
	if r.Wall >= issued || -ahead <= g.tolerance {
		g.trusted = r
	}
	return r.Wall
}

// trust ends the doubt.
func (g *stepGuard) trust(r Reading) { g.trusted, g.doubting = r, false }

// trustAlone is how long a step forward is doubted when there are no peers to ask.
const trustAlone = 10_000 // ms

// checkStep decides, if it can, whether to trust a wall clock that stepped forward. It trusts
// the step if most of the peers' clocks agree, or if there are no peers and the step has lasted.
func (g *Generator) checkStep(ctx context.Context) {
	before, expected, doubting := g.doubtedStep()
	if !doubting {
		return
	}
	peers, err := g.askPeers(ctx)
	if err != nil {
		return
	}
	agreed := 2*g.cfg.near(peers) > len(peers) // most of them: a single wrong clock proves nothing

	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Clock()
	g.timeLocked(now)
	if !g.clock.guard.doubting {
		return
	}
	alone := len(peers) == 0 && now.Mono-g.clock.guard.since >= trustAlone
	if alone || len(peers) > 0 && !agreed {
		skewed := ClockSkewed{Now: before.Wall, Expected: expected, Threshold: g.cfg.MaxClockSkew.Milliseconds()}
		if len(peers) > 0 {
			skewed.Peers = before.Wall + Median(peers)
		}
		g.reportSkewedLocked(&skewed)
	}
	switch {
	case agreed || alone:
		g.clock.guard.trust(now)
		wake(g.signals.keep) // the reservation may end before the new time
	case len(peers) > 0:
		g.clock.guard.since = now.Mono // after one lost answer, peers that disagreed still count
	}
}

// doubtedStep returns the reading of the clock and what it should be, and whether a step forward is
// doubted. It reports the end of a doubt, and of one that kept the generator from starting.
func (g *Generator) doubtedStep() (r Reading, expected int64, doubting bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r = g.cfg.Clock()
	expected = g.timeLocked(r)
	doubting = g.clock.guard.doubting
	if !doubting && g.clock.skewed && g.worker.started {
		g.clock.skewed = false
		g.cfg.Notify(Recovered{g.workerLocked(), EpisodeSkewed})
	}
	return r, expected, doubting
}

// reportSkewedLocked reports once that the clock is not trusted; nil: it is.
func (g *Generator) reportSkewedLocked(e *ClockSkewed) {
	if e != nil && !g.clock.skewed {
		g.clock.skewed = true
		g.cfg.Notify(*e)
	}
}

// askFor bounds how long the peers are asked for their clocks. An attempt to get a
// worker needs the rest of its time for the registry.
const askFor = time.Second

// askPeers returns how far the peers' clocks are ahead of this one's.
func (g *Generator) askPeers(ctx context.Context) ([]int64, error) {
	before := g.cfg.Clock()
	ask, cancel := context.WithTimeout(ctx, askFor)
	peers := g.cfg.PeerClocks(ask)
	cancel()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("asking the other generators for their clocks: %w", err)
	}
	// The clocks are compared halfway between the question and the answer, so a pause looks like a
	// wrong clock, or hides one.
	now := g.cfg.Clock()
	if now.Mono-before.Mono > 2*askFor.Milliseconds() || !g.cfg.agrees(now.setSince(before)) {
		return nil, errors.New("the other generators were asked for their clocks, and meanwhile this " +
			"one's was set or the process stood still")
	}
	return peers, nil
}

// Median is the middle of numbers, and 0 of none. It says how far the peers' clocks are
// ahead, where Leaf's documents say average. One clock that is wrong by a day moves the average
// of a thousand by more than a minute. The median is wrong only if half of the clocks are.
func Median(numbers []int64) int64 {
	if len(numbers) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	low, high := sorted[(len(sorted)-1)/2], sorted[len(sorted)/2]
	return low + int64((uint64(high)-uint64(low))/2) // this way nothing overflows
}

// backwards is what is being done about a clock that went backwards.
type backwards int

const (
	backwardsNot backwards = iota
	backwardsWaiting
	backwardsRefusing
)

// checkBackwardsLocked decides what to do about a clock that is behind the last ID. It waits
// for twice the offset if that is small, and else refuses until the clock has caught up.
func (g *Generator) checkBackwardsLocked(r Reading, t int64) (wait int64, err error) {
	c := &g.clock
	offset := g.seq.ms - t
	small := offset <= g.cfg.MaxBack.Milliseconds()
	switch {
	case c.backwards == backwardsWaiting && small && r.Mono < c.waitUntil:
		return c.waitUntil - r.Mono, nil
	case offset <= 0:
		g.clearBackwardsLocked(g.workerLocked())
		return 0, nil
	case c.backwards == backwardsNot && small:
		c.backwards, wait = backwardsWaiting, 2*offset
		c.waitUntil = r.Mono + wait
		g.cfg.Notify(ClockBackwards{g.workerLocked(), offset, g.seq.ms, t, Waited})
		return wait, nil
	case c.backwards != backwardsRefusing:
		c.backwards = backwardsRefusing
		g.cfg.Notify(ClockBackwards{g.workerLocked(), offset, g.seq.ms, t, Refused})
	}
	return 0, &BackwardsError{duration(offset)}
}

// clearBackwardsLocked ends the episode of a worker whose clock was behind, if it was.
func (g *Generator) clearBackwardsLocked(worker int64) {
	if g.clock.backwards != backwardsNot {
		g.clock.backwards = backwardsNot
		g.cfg.Notify(Recovered{worker, EpisodeBackwards})
	}
}

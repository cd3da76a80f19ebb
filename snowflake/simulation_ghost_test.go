//go:build !race

package snowflake_test

import (
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// A process that is frozen for more than a second may find, when it thaws, that
// its folder was started elsewhere under the same place. Then it is a ghost.

// moves starts the folder elsewhere, if its process is frozen: it is on a shared
// volume, or on an image of one. It reports whether that was so.
func (o *owner) moves() bool {
	w, p := o.w, o.p
	frozen := p.stalled || p.thaw > w.turn && !p.writing
	if w.calm || !frozen || p.dead || p.keeper == nil || o.image || len(o.ghosts) > 1 {
		return false
	}
	o.ghosts, o.p = append(o.ghosts, p), nil
	if w.chance(2) {
		o.note("moved to another machine")
	} else {
		o.note("started from an image")
		o.disk, o.image = o.disk.Copy(), true
	}
	o.start()
	return true
}

// lurks reports whether the process is the original of an image that was
// started, and stays frozen until the registry knows of that start: else it would be an
// original that runs beside its clone.
func (p *process) lurks() bool { return p.owner.p != p && p.image }

// endGhosts ends the processes that are frozen elsewhere.
func (o *owner) endGhosts() {
	for _, p := range o.ghosts {
		p.dead = true
		p.end()
	}
	o.ghosts = nil
}

// oversleep makes a process that thaws have stood still for long enough to be
// noticed, if its folder was started elsewhere.
func (p *process) oversleep() {
	const least = 1100 * time.Millisecond
	if slept := p.clock.mono() - p.froze; p.owner.p != p && slept < least {
		p.w.now += time.Duration(float64(least-slept)/p.clock.rate) + time.Millisecond
		p.w.lookAlive()
	}
}

// lookAlive notices whether the process stood still.
func (p *process) lookAlive() {
	p.oversleep()
	p.asleep = false
	p.do(p.g.LookAlive)
	if p.g.Doubtful() {
		p.note("stood still")
	}
}

// reading is what the clocks of the process say.
func (p *process) reading() snowflake.Reading {
	return snowflake.Reading{Wall: p.clock.wall(), Mono: (p.clock.mono() - p.born).Milliseconds()}
}

// lookAlive lets all processes that run know that they did not stand still, but
// for some that were busy.
func (w *simWorld) lookAlive() {
	for _, o := range w.owners {
		p := o.p
		if p == nil || !p.runs() || !p.g.Free() || p.asleep {
			continue
		}
		if w.chance(200) {
			p.asleep = true
			continue
		}
		p.g.Ran(p.reading())
	}
}

//go:build !race

package snowflake_test

import (
	"cmp"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// owner is a data folder, on a machine with a clock, and the process that uses
// it. It is what the registry gives workers to.
type owner struct {
	w     *simWorld
	name  string // also the place of its folder
	clock *machineClock
	disk  *snowflaketest.Disk
	p     *process // nil: none
	// ghosts are processes that were frozen when the folder was started elsewhere.
	ghosts []*process
	// image: that was done with an image of the volume, and the registry has not
	// confirmed it yet.
	image bool
	// restart: a ghost has made its process end, which its supervisor starts again.
	restart bool
	gone    bool // and never will be
}

func (o *owner) note(what string, details ...any) { o.w.note(o.name, what, details...) }

// act takes one turn.
func (o *owner) act() {
	w, p := o.w, o.p
	switch {
	case w.chance(25):
		o.step()
		return
	case p == nil && !o.gone && w.chance(3):
		o.start()
		return
	case p != nil && w.chance(8) && o.moves():
		return
	}
	if len(o.ghosts) > 0 && (p == nil || w.chance(2)) {
		p = pick(w, o.ghosts...)
	}
	if p == nil || !p.runs() {
		return
	}
	if p.asleep {
		p.oversleep()
		if w.chance(2) {
			p.lookAlive()
		}
	}
	switch n := w.random.IntN(240); {
	case n < 80:
		p.request(w.count())
	case n < 130:
		for range 1 + w.random.IntN(6) {
			p.resume(p.keeper)
		}
	case n < 150:
		p.advance()
	case n < 170:
		p.serve(1 + w.random.IntN(8))
	case n < 185:
		p.collect(false)
	case n < 205:
		p.resume(p.doubter)
	case n < 220:
		p.do(func() { p.g.State() })
	case n < 224:
		p.freeze()
	case n < 225:
		o.crash(p, false)
	case n < 226:
		o.crash(p, true)
	case n < 228:
		p.stopping = true
	case n < 231 && p == o.p:
		o.disk.Fail(w.random, pick(w, 0, 0, 0.1, 0.5, 1))
	}
}

// step sets the clock: by a little, by much, or to an edge.
func (o *owner) step() {
	c := o.clock
	by := time.Duration(0)
	switch o.w.random.IntN(10) {
	case 0, 1:
		by = o.w.upTo(20*time.Millisecond) - 10*time.Millisecond
	case 2, 3:
		by = o.w.upTo(6*time.Second) - 3*time.Second
	case 4:
		by = o.w.upTo(6*time.Hour) - 3*time.Hour
	case 5:
		c.setRate(pick(o.w, 0.5, 0.9, 1, 1.1, 2))
	case 6:
		if c.offset < 365*day && o.w.chance(2) {
			by = 29 * 365 * day // to the year 2055
		} else {
			by = -c.offset // it is right
		}
	default:
		by = time.Duration(o.edge()-c.wall()) * time.Millisecond
	}
	c.offset += by
	o.note("clock set", by, c.wall())
	for _, other := range o.w.owners {
		if p := other.p; p != nil && other.clock == c {
			p.asleep = true // to it the machine may have slept
		}
	}
	if by > 365*day {
		for _, other := range o.w.owners {
			if p := other.p; p != nil && p.keeper != nil && other.clock == c && (p.stepped == 0 || p.doubtful()) {
				p.stepped = c.mono()
			}
		}
	}
}

// edge is a wall time at which something begins or ends, or next to it.
func (o *owner) edge() int64 {
	edges := []int64{o.clock.wall()}
	if e := o.w.list(); len(e) > 0 {
		edges = append(edges, pick(o.w, e...).ReservedUntil)
	}
	if o.p != nil && o.p.runs() {
		if m := o.p.g.Marks(); m.Ceiling > 0 {
			edges = append(edges, m.Last, m.Ceiling, cmp.Or(m.Floor, m.Last))
		}
	}
	return pick(o.w, edges...) + int64(o.w.random.IntN(3)-1)
}

// copy makes another owner of a copy of the folder, or of none, under the same
// name and clock.
func (o *owner) copy() {
	w := o.w
	other := &owner{w: w, name: fmt.Sprint("owner", len(w.owners)), clock: o.clock}
	switch {
	case o.p == nil && w.chance(2):
		o.note("folder lost", other.name)
		other.disk, o.gone = snowflaketest.NewDisk(), true
	default:
		o.note("copied", other.name)
		other.disk = o.disk.Copy()
	}
	w.owners = append(w.owners, other)
}

// heal ends all that is wrong with the owner.
func (o *owner) heal() {
	o.clock.setRate(1)
	o.clock.offset = o.w.now - o.clock.mono()
	o.disk.Fail(nil, 0)
	o.endGhosts()
	if o.p != nil && o.p.stopping {
		o.crash(o.p, false)
	}
	if o.p == nil {
		o.start()
	}
	o.p.collect(true) // with long units, those who wait would have all IDs of the next seconds
	o.p.thaw, o.p.served, o.p.tries = 0, false, 0
}

// damage makes a slot of the file unreadable.
func damage(d *snowflaketest.Disk, slot int) {
	d.WriteAt([]byte("damaged"), int64(slot)*4096+100)
	d.Sync()
}

// start starts a process.
func (o *owner) start() {
	w := o.w
	if w.chance(8) {
		o.note("slot damaged")
		damage(o.disk, w.random.IntN(2))
	}
	o.disk.Fail(nil, 0) // a ghost may have left it failing
	shared := len(o.ghosts) > 0
	p := &process{owner: o, claims: -1, last: -1, born: o.clock.mono()}
	o.p, o.restart = p, false
	o.note("started", o.clock.wall())
	config := w.config
	config.Node, config.Place = "node", o.name
	config.Registry = wire{p}
	config.Clock = p.read
	config.HeldByPeerLately, config.HeldByPeer, config.PeerClocks, config.Notify = p.claimed, p.claimed, p.peers, p.notify
	p.do(func() {
		var err error
		config.File, err = snowflake.NewFile(disk{o.disk, p})
		switch {
		case err != nil && shared: // and it may let it fail amid this start
			p.leave()
			return
		case err != nil:
			w.fail("%s does not start: %v", o.name, err)
			return
		}
		p.g = snowflake.New(config)
		p.g.SetRandom(w.random.Int64N)
		if !w.checked {
			p.g.SkipStart()
		}
		p.g.Bind("installation")
		p.keeper, p.doubter = p.task(p.keeps), p.task(p.doubts)
	})
}

// crash ends the process, and with power failing what the system had not written.
func (o *owner) crash(p *process, power bool) {
	if p != o.p {
		o.endGhosts()
		return
	}
	if p.last > 0 && o.w.chance(2) { // who starts next finds a clock that is behind
		id, _ := o.w.config.Layout.Decode(p.last)
		o.clock.offset += time.Duration(id.UnixMS-o.clock.wall())*time.Millisecond - o.w.upTo(3*time.Second)
	}
	o.p, p.dead = nil, true
	if power {
		o.note("power failed")
		o.disk = o.disk.PowerFail(o.w.random)
	} else {
		o.note("killed")
		o.disk = o.disk.Kill()
	}
	p.end()
	for slot := range 3 { // the third is neither of the two
		left := o.disk.Copy()
		damage(left, slot)
		o.w.restartable(o, left)
	}
	o.gone = o.w.chance(20)
	if o.w.chance(4) {
		o.w.loseRegistry()
	}
}

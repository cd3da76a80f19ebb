//go:build !race

package snowflake_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// machineClock runs at a rate and is set by anybody.
type machineClock struct {
	w      *simWorld
	rate   float64
	ticks  time.Duration // at the true time since
	since  time.Duration
	offset time.Duration // of the wall clock
}

func newMachineClock(w *simWorld) *machineClock {
	return &machineClock{w: w, rate: pick(w, 1, 1, 1, 0.5, 0.999, 1.001, 2), offset: pick(w, 0, 0, w.upTo(10*time.Hour)-5*time.Hour)}
}

func (c *machineClock) mono() time.Duration {
	return c.ticks + time.Duration(float64(c.w.now-c.since)*c.rate)
}

func (c *machineClock) wall() int64 { return birth + (c.mono() + c.offset).Milliseconds() }

// until is how long it takes to the wall time ms.
func (c *machineClock) until(ms int64) time.Duration {
	return time.Duration(float64(ms-c.wall())/c.rate) * time.Millisecond
}

func (c *machineClock) setRate(rate float64) { c.ticks, c.since, c.rate = c.mono(), c.w.now, rate }

// owner is a data folder, on a machine with a clock, and the process that uses
// it. It is what the registry gives workers to.
type owner struct {
	w     *simWorld
	name  string // also the place of its folder
	clock *machineClock
	disk  *snowflaketest.Disk
	p     *process // nil: none
	gone  bool     // and never will be
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
	case p == nil || !p.runs():
		return
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
		p.collect()
	case n < 205:
		p.resume(p.doubter)
	case n < 220:
		p.do(func() { p.g.State() })
	case n < 224:
		p.freeze()
	case n < 225:
		o.crash(false)
	case n < 226:
		o.crash(true)
	case n < 228:
		p.stopping = true
	case n < 231:
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
	if o.p != nil && o.p.stopping {
		o.crash(false)
	}
	if o.p == nil {
		o.start()
	}
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
	p := &process{owner: o, claims: -1, last: -1}
	o.p = p
	o.note("started", o.clock.wall())
	born := o.clock.mono()
	config := w.config
	config.Node, config.Place = "node", o.name
	config.Registry = wire{p}
	config.Clock = func() snowflake.Reading { return p.read(born) }
	config.Claimed, config.Held, config.Peers, config.Notify = p.claimed, p.claimed, p.peers, p.notify
	p.do(func() {
		var err error
		if config.File, err = snowflake.NewFile(disk{o.disk, p}); err != nil {
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
func (o *owner) crash(power bool) {
	p := o.p
	if p.last > 0 && o.w.chance(2) { // who starts next finds a clock that is behind
		id, _ := o.w.config.Layout.Decode(p.last, math.MaxInt64)
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

// process is a run of a generator. A part of it that is on the stack when it
// dies ends with a panic of errCrashed.
type process struct {
	*owner
	g               *snowflake.Generator
	keeper, doubter *task // the goroutines that ask others

	dead      bool
	thaw      int  // the turn until which it is frozen
	stalled   bool // it is frozen, with its locks held
	writing   bool // it is amid a write
	stopping  bool // its context is done
	drained   bool // and its goroutines have ended
	closed    bool
	waiters   []waiting
	last      int64         // ID
	claims    int64         // the worker that others believe it has
	read1st   bool          // it has read its clock
	stepped   time.Duration // ticks of its clock when it last leapt by years, or was last contradicted
	confirmed bool          // it began after that, or a peer agrees
	served    bool          // it issued something since the faults ended
	tries     int           // to get a worker since then
}

type waiting struct {
	*snowflake.Waiter
	n     int64
	after int64 // ID that was the last when it began
}

var errCrashed = errors.New("crashed")

// task is a goroutine of the process that lets others run while it waits for an
// answer.
type task struct {
	next          func() (struct{}, bool)
	stop          func()
	pause         func()
	running, done bool
	idle          bool // it waits for nothing
}

func (p *process) task(run func(*task)) *task {
	t := new(task)
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.pause = func() {
			if !yield(struct{}{}) {
				panic(errCrashed)
			}
		}
		p.do(func() { run(t) })
	})
	return t
}

// resume lets a task run until it pauses.
func (p *process) resume(t *task) {
	if t.done || t.running || p.writing {
		return
	}
	t.running = true
	_, ok := t.next()
	t.running, t.done = false, !ok
}

// end ends the tasks that are not on the stack.
func (p *process) end() {
	for _, t := range []*task{p.keeper, p.doubter} {
		if t != nil && !t.running {
			t.stop()
		}
	}
}

// do does what ends when the process crashes.
func (p *process) do(step func()) {
	defer func() {
		if v := recover(); v != nil && v != errCrashed {
			panic(v)
		}
	}()
	step()
	p.survive()
	if p.g != nil {
		p.claims = p.g.Worker()
	}
}

// survive ends what is on the stack of a process that died meanwhile.
func (p *process) survive() {
	if p.dead {
		panic(errCrashed)
	}
}

func (p *process) runs() bool { return p.keeper != nil && !p.dead && !p.stalled && p.thaw <= p.w.turn }

func (p *process) freeze() {
	p.thaw = p.w.turn + p.w.random.IntN(50)
	p.note("frozen")
}

// keeps is what keepAlways does, and Run and Close after it.
func (p *process) keeps(t *task) {
	ctx := context.Background()
	for !p.stopping {
		err := p.g.Keep(ctx)
		if err != nil {
			p.w.trace("%v %s: %v", p.w.now, p.name, err)
		}
		switch {
		case errors.Is(err, snowflake.ErrRefused):
			p.refuse()
			return
		case err != nil && errors.Is(err, snowflake.ErrClockBackwards):
			p.note("start waited")
		}
		p.claims = p.g.Worker()
		if m := p.g.Marks(); m.Unconfirmed {
			p.note("started from the file", fmt.Sprintf("%+v", m))
		}
		t.idle = true
		t.pause()
		t.idle = false
	}
	p.g.Drain()
	for p.drained = true; !p.doubter.done; {
		t.pause()
	}
	p.note("stopped")
	p.w.trace("%v %s: retire: %v", p.w.now, p.name, p.g.Retire(ctx))
	for range p.w.random.IntN(4) {
		t.pause()
	}
	p.w.trace("%v %s: close: %v", p.w.now, p.name, p.g.Close())
	p.closed = true
	for range p.w.random.IntN(4) {
		t.pause()
	}
	p.owner.p, p.dead = nil, true
	p.disk = p.disk.Kill()
}

// refuse ends a process whose start was refused.
func (p *process) refuse() {
	if p.last > 0 || p.g.Worker() >= 0 {
		p.w.fail("%s had worker %d and issued %d, and is refused", p.name, p.g.Worker(), p.last)
	}
	p.g.Drain()
	p.owner.p, p.dead = nil, true
	p.disk = p.disk.Kill()
	p.end()
}

func (p *process) doubts(t *task) {
	for !p.stopping {
		p.g.Doubt(context.Background())
		if p.g.Marks().Doubting {
			p.note("step forward doubted")
		}
		t.idle = true
		t.pause()
		t.idle = false
	}
}

func (p *process) advance() {
	if p.writing || p.drained {
		return
	}
	p.do(func() {
		if err := p.g.Advance(); err != nil {
			p.note("write failed", err)
		}
	})
}

// serve is what serveAlways does for so many ms.
func (p *process) serve(times int) {
	for range times {
		if p.drained || !p.runs() {
			return
		}
		p.do(func() { p.g.Serve() })
		p.w.now += p.w.upTo(2 * time.Millisecond)
	}
}

// request asks for n IDs.
func (p *process) request(n int64) {
	p.do(func() {
		ranges, waiter, err := p.g.Request(nil, n)
		p.survive()
		m := p.g.Marks()
		switch {
		case waiter != nil:
			p.waiters = append(p.waiters, waiting{waiter, n, p.last})
			if now := p.clock.wall(); m.Ceiling > 0 && m.Ceiling <= now {
				p.note("ceiling met")
			} else if now < m.Floor {
				p.note("rested at start")
			}
		case p.closed && !errors.Is(err, snowflake.ErrClosed):
			p.w.fail("%s got %v, %v after Close", p.name, ranges, err)
		case err == nil:
			p.accept(ranges, n, p.last)
		case errors.Is(err, snowflake.ErrNoWorker):
			if m.Ceiling > 0 {
				p.note("reservation's end met", err)
			}
		case errors.Is(err, snowflake.ErrClockBackwards), errors.Is(err, snowflake.ErrOverloaded):
		case errors.Is(err, snowflake.ErrClosed):
			if !p.stopping {
				p.w.fail("%s: %v", p.name, err)
			}
		default:
			p.w.fail("%s: Request(%d): %v", p.name, n, err)
		}
	})
}

// collect takes what was waited for, or gives up to wait for it.
func (p *process) collect() {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	p.waiters = slices.DeleteFunc(p.waiters, func(w waiting) bool {
		if !w.Done() && !p.w.chance(10) {
			return false
		}
		if !w.Done() {
			p.note("gave up waiting")
		}
		ranges, err := w.Wait(done)
		switch {
		case err == nil:
			p.note("waited and served", w.n)
			p.accept(ranges, w.n, w.after)
		case ranges != nil:
			p.w.fail("%s: IDs %v and an error: %v", p.name, ranges, err)
		}
		return true
	})
}

// accept checks IDs that a caller got, of which it had wanted n after another.
func (p *process) accept(ranges []snowflake.Range, n, after int64) {
	p.served = true
	for _, r := range ranges {
		n -= r.Len()
		layout := p.w.config.Layout
		first, err := layout.Decode(r.First, layout.End())
		last, err2 := layout.Decode(r.Last, layout.End())
		if err := errors.Join(err, err2); err != nil {
			p.w.fail("%s got %v, %+v: %v", p.name, r, first, err)
		}
		switch {
		case first.UnixMS != last.UnixMS || first.Worker != last.Worker:
			p.w.fail("%s got %v, from %+v to %+v", p.name, r, first, last)
		case r.First <= after:
			p.w.fail("%s got %v after %d", p.name, r, after)
		case first.UnixMS > future && p.doubtful():
			p.w.fail("%s got %v, %+v, %v after its clock leapt, and nobody agreed", p.name, r, first, p.clock.mono()-p.stepped)
		}
		after = r.Last
		p.w.use(p, first)
		p.w.trace("%v %s: IDs %d to %d of worker %d at %d", p.w.now, p.name, first.Sequence, last.Sequence, first.Worker, first.UnixMS)
	}
	if n != 0 {
		p.w.fail("%s got %v, %d too few", p.name, ranges, n)
	}
	p.last = max(p.last, after)
	p.w.ids.Add(ranges...)
}

// live does all that a process without faults does for a while. It reports
// whether that was of use: it has issued something, or can't for now.
func (p *process) live() bool {
	noWorker := p.g.Worker() < 0
	if noWorker && p.tries > 3 && p.w.free() == 0 {
		return true
	}
	p.tries++
	for _, t := range []*task{p.keeper, p.doubter} {
		for range 20 {
			if p.resume(t); t.idle {
				break
			}
		}
	}
	p.advance()
	p.request(1)
	p.serve(4)
	p.collect()
	return p.served || !noWorker && p.g.Marks().Last > p.clock.wall()+time.Minute.Milliseconds()
}

// read is the clock of the process, which may be frozen just after it.
func (p *process) read(born time.Duration) snowflake.Reading {
	r := snowflake.Reading{Wall: p.clock.wall(), Mono: p.clock.mono() - born}
	if !p.read1st {
		p.read1st, p.confirmed = true, r.Wall > future
	}
	if p.w.chance(150) {
		p.note("frozen at a clock")
		p.stalled = true
		for range 1 + p.w.random.IntN(20) {
			p.w.step()
		}
		p.stalled = false
		p.survive()
	}
	return r
}

// doubtful reports whether nobody can know yet that the clock was right to leap.
func (p *process) doubtful() bool {
	return p.stepped > 0 && !p.confirmed && p.clock.mono()-p.stepped < 10*time.Second
}

// claimed also lets the other goroutines of the process run, if no lock is held.
func (p *process) claimed(worker int64) bool {
	if p.keeper.running && !p.dead && p.g.Free() && p.w.chance(4) {
		p.advance()
		p.request(1)
		p.survive()
	}
	for _, o := range p.w.owners {
		if o.p != nil && o.p != p && o.p.claims == worker && !p.w.chance(4) {
			return true
		}
	}
	return false
}

func (p *process) peers(context.Context) (ahead []time.Duration) {
	asks := p.doubter
	if p.keeper.running { // a start
		asks = p.keeper
	}
	asks.pause()
	none := p.w.chance(3)
	for _, o := range p.w.owners {
		if o.p != nil && o.p != p && !none && !p.w.chance(3) {
			ahead = append(ahead, time.Duration(o.clock.wall()-p.clock.wall())*time.Millisecond)
		}
	}
	if asks == p.doubter && p.stepped > 0 && len(ahead) > 0 {
		if slices.ContainsFunc(ahead, func(d time.Duration) bool { return d.Abs() <= snowflake.DefaultMaxClockSkew }) {
			p.confirmed = true
		} else if p.doubtful() {
			p.stepped = p.clock.mono()
		}
	}
	asks.pause()
	return ahead
}

func (p *process) notify(e snowflake.Event) {
	switch e := e.(type) {
	case snowflake.WorkerAcquired:
		p.note("claimed again", e)
	case snowflake.WorkerLost:
		p.note("worker lost", e)
	case snowflake.WorkerReleased:
		p.note("worker released", e)
	case snowflake.WorkerExpiring:
		p.note("reservation expiring", e)
	case snowflake.ClockBackwards:
		p.note("went back, "+string(e.Action), e)
	case snowflake.ClockSkewed:
		switch {
		case e.Recorded > 0:
			p.note("start refused, behind", e)
		case e.Expected == 0:
			p.note("start refused, peers", e)
		default:
			p.note("step forward believed", e)
		}
	}
}

// disk is the disk of a process, which may crash before, amid and after each
// write, and whose other goroutines run meanwhile.
type disk struct {
	*snowflaketest.Disk
	p *process
}

func (d disk) WriteAt(b []byte, off int64) (int, error) {
	d.p.crashInWrite(120)
	if d.p.w.chance(120) {
		d.Disk.Fail(d.p.w.random, 1)
		d.Disk.WriteAt(b, off)
		d.p.crashInWrite(1)
	}
	n, err := d.Disk.WriteAt(b, off)
	d.p.crashInWrite(120)
	return n, err
}

func (d disk) Sync() error {
	p := d.p
	if p.w.chance(10) && !p.writing && !p.stalled {
		p.note("other things amid a write")
		p.writing = true
		for range 1 + p.w.random.IntN(10) {
			if p.w.chance(2) && p.runs() {
				p.request(p.w.count())
			}
			p.w.step()
		}
		p.writing = false
		p.survive()
	}
	err := d.Disk.Sync()
	p.crashInWrite(120)
	return err
}

func (p *process) crashInWrite(in int) {
	if p.w.chance(in) {
		p.note("crashed in a write")
		p.crash(p.w.chance(2))
		panic(errCrashed)
	}
}

// wire is the way of a process to the registry of its world.
type wire struct{ p *process }

func (r wire) List(context.Context) ([]snowflake.Entry, error) {
	w := r.p.w
	r.p.keeper.pause()
	entries := w.list()
	switch {
	case w.turn < w.away || w.chance(w.faulty):
		return nil, errNoAnswer
	case w.old != nil && w.chance(10):
		entries = w.old
		r.p.note("old list")
	case w.chance(5):
		w.old = entries
	}
	r.p.keeper.pause()
	return slices.Clone(entries), nil
}

func (r wire) Add(_ context.Context, rec snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	return call(r.p, func() (snowflake.Entry, error) { return r.p.w.add(r.p.owner, rec, c) })
}

func (r wire) Put(_ context.Context, rec snowflake.Record, version uint64) (uint64, error) {
	return call(r.p, func() (uint64, error) { return r.p.w.put(r.p.owner, rec, version) })
}

// call makes a write, of which the effect and the answer may each come late, or
// not at all.
func call[T any](p *process, write func() (T, error)) (T, error) {
	var none T
	w := p.w
	p.keeper.pause()
	switch {
	case w.turn < w.away || w.chance(w.faulty):
		p.note("answer lost, not done")
		return none, errNoAnswer
	case w.chance(w.faulty):
		w.late = append(w.late, func() {
			if _, err := write(); err == nil {
				p.note("written late")
			}
		})
		return none, errNoAnswer
	}
	answer, err := write()
	p.keeper.pause()
	if w.chance(w.faulty) {
		p.note("answer lost, done")
		return none, errNoAnswer
	}
	return answer, err
}

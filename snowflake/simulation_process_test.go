//go:build !race

package snowflake_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
)

// process is a run of a generator. A part of it that is on the stack when it
// dies ends with a panic of errCrashed.
type process struct {
	*owner
	g               *snowflake.Generator
	keeper, doubter *task // the goroutines that ask others

	born      time.Duration // mono
	dead      bool
	asleep    bool          // it may have stood still since it last looked
	froze     time.Duration // mono, when it was frozen
	thaw      int           // the turn until which it is frozen
	stalled   bool          // it is frozen, with its locks held
	writing   bool          // it is amid a write
	stopping  bool          // its context is done
	drained   bool          // and its goroutines have ended
	closed    bool
	waiters   []waiting
	last      int64         // ID
	claims    int64         // the worker that others believe it has
	read1st   bool          // it has read its clock
	stepped   time.Duration // ticks of its clock when it last leapt by years, or was last contradicted
	confirmed bool          // it began after that, or a peer agrees
	served    bool          // it issued something since the faults ended
	tries     int           // to get a worker since then
	asked     int64         // when it was last asked for an ID since then, Unix ms
}

type waiting struct {
	*allocator.Later
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

func (p *process) runs() bool {
	return p.keeper != nil && !p.dead && !p.stalled && p.thaw <= p.w.turn && !p.lurks()
}

func (p *process) freeze() {
	p.thaw = p.w.turn + p.w.random.IntN(50)
	p.asleep, p.froze = true, p.clock.mono()
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
		case errors.Is(err, snowflake.ErrNotAlone):
			p.note("not alone in its folder")
			p.restart = p.owner.p == p
			p.g.Drain()
			p.leave()
			return
		case err != nil && errors.Is(err, snowflake.ErrClockBackwards):
			p.note("start waited")
		}
		p.claims = p.g.Worker()
		if m := p.g.Marks(); m.Unconfirmed {
			p.note("started from the file", fmt.Sprintf("%+v", m))
		} else if err == nil && p.owner.p == p {
			p.image = false
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
	p.leave()
}

// leave ends the process.
func (p *process) leave() {
	p.dead = true
	if p.owner.p == p {
		p.owner.p, p.disk = nil, p.disk.Kill()
	}
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

// request asks for n IDs, or for as many as a worker issues in the longest wait.
func (p *process) request(n int64) {
	l := p.w.config.Layout
	n = min(n, allocator.DefaultMaxWait.Milliseconds()/l.Unit()*l.PerUnit())
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

// collect takes what was waited for, or gives up to wait for it, which it always does if it is impatient.
func (p *process) collect(impatient bool) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	p.waiters = slices.DeleteFunc(p.waiters, func(w waiting) bool {
		if p.g.Waits(w.Later) && !impatient && !p.w.chance(10) {
			return false
		}
		if p.g.Waits(w.Later) {
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
		first, err := layout.Decode(r.First)
		last, err2 := layout.Decode(r.Last)
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
	p.asked = birth + p.w.now.Milliseconds()
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
	p.collect(false)
	return p.served || !noWorker && p.g.Marks().Last > p.clock.wall()+time.Minute.Milliseconds()
}

// read is the clock of the process, which may be frozen just after it.
func (p *process) read() snowflake.Reading {
	r := p.reading()
	if !p.read1st {
		p.read1st, p.confirmed = true, r.Wall > future
	}
	if p.w.chance(150) {
		p.note("frozen at a clock")
		p.stalled, p.asleep, p.froze = true, true, p.clock.mono()
		for range 1 + p.w.random.IntN(20) {
			p.w.step()
		}
		p.stalled = false
		p.dead = p.dead || p.lurks()
		p.survive()
		p.oversleep()
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
		p.survive()
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

func (p *process) peers(context.Context) (ahead []int64) {
	asks := p.doubter
	if p.keeper.running { // a start
		asks = p.keeper
	}
	asks.pause()
	none := p.w.chance(3)
	for _, o := range p.w.owners {
		if o.p != nil && o.p != p && !none && !p.w.chance(3) {
			ahead = append(ahead, o.clock.wall()-p.clock.wall())
		}
	}
	if asks == p.doubter && p.stepped > 0 && len(ahead) > 0 {
		if slices.ContainsFunc(ahead, func(ms int64) bool { return max(ms, -ms) <= snowflake.DefaultMaxClockSkew.Milliseconds() }) {
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

func (p *process) crashInWrite(in int) {
	if p.w.chance(in) {
		p.note("crashed in a write")
		p.crash(p, p.w.chance(2))
		panic(errCrashed)
	}
}

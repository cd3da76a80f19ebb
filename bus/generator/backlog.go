package generator

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// usuallyLate is how long requests may wait before a generator leaves a queue group: longer than a burst or a pause of the
	// process delays them, and less than the 500 ms that the most impatient callers wait.
	usuallyLate = 150 * time.Millisecond
	// leastLate and mostLate bound how this time is adapted.
	leastLate = tickEvery
	mostLate  = 1500 * time.Millisecond
	// probeEvery is how often a busy generator sends a probe. One costs 0.1 to 0.3 ms of processor time.
	probeEvery = 100 * time.Millisecond
	// lostProbe is after how long nobody waits for a probe any more: it counts as back.
	lostProbe = 5 * time.Second
	// tickEvery is how often it looks whether a probe is late.
	tickEvery = 20 * time.Millisecond
	// busy is how many requests it must read between two probes. It has no backlog if it reads fewer.
	busy = 100
	// longBacklog and shortBacklog are how long the answers to a backlog should take at most and at least. If they take longer, the
	// generator leaves sooner next time. If they take less, it stays longer: perhaps it only stood still.
	longBacklog  = 150 * time.Millisecond
	shortBacklog = 100 * time.Millisecond
	// deliversAgain is after how long without a request a generator that is out enters again.
	deliversAgain = 200 * time.Millisecond
	// standstill is how late a tick may come in a process that runs.
	standstill = 3 * tickEvery
	// fewRequests are no backlog, however long they wait. The machine is slow, and would not be faster without them.
	fewRequests = 500
	// calm is how long after an overload the next one is a new one.
	calm = 5 * time.Second
)

// backlog keeps the backlog of a generator short if more requests come than it can answer: those that have come and wait.
// The generator leaves the queue group for moments. Meanwhile it answers the backlog, and NATS gives new requests to
// other generators. If there is none, NATS refuses them at once ("no responders").
//
// The generator cannot refuse them itself, because reading a request costs about as much as answering it. It cannot count them
// either, because they wait in NATS servers, in TCP and in nats.go. So it sends a probe the same way, and measures its time.
//
// The fields and methods belong to run.
type backlog struct {
	log      *slog.Logger
	services []*issuer
	// probe returns a channel that is closed when the callbacks of all requests have ended that NATS passed on before.
	probe func(context.Context) <-chan struct{}
	// step makes the services leave or enter as crowd.aside says.
	step func(context.Context)

	late    time.Duration // how long requests may wait now
	sent    time.Time     // the last probe
	last    time.Duration // how long it took; 0: services have left or entered since
	ticked  time.Time     // the last tick
	stood   time.Time     // when a tick last came too late
	leaves  int           // of this overload
	left    time.Time     // when the first service left that is still out; zero: none is
	entered time.Time     // when they entered again
}

// crowd is what the backlog knows of a service.
type crowd struct {
	read  atomic.Int64 // requests, since the start
	aside atomic.Bool  // it must stay out of its queue group

	before int64 // requests that were read before the last probe; owned by backlog.run
	out    bool  // it has left for this reason; owned by Generator.Run
}

// run watches at each tick, every tickEvery, until the context is done.
func (b *backlog) run(ctx context.Context, ticks <-chan time.Time) {
	b.late, b.ticked = usuallyLate, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			now, _ := b.tick()
			if b.leaves > 0 && now.Sub(b.entered) > calm {
				b.log.Info("the overload is over", "times_left", b.leaves)
				b.late, b.leaves = usuallyLate, 0
			}
			if now.Sub(b.sent) >= min(b.late, probeEvery) && b.read() >= busy {
				b.follow(ctx, ticks)
			}
		}
	}
}

// tick notes a tick, and reports whether the process stood still before it. What came meanwhile is no sign of an overload: it becomes
// less if fewer requests come than the generator answers. A process that stands still often gets no such allowance.
func (b *backlog) tick() (now time.Time, stood bool) {
	now = time.Now()
	pause := now.Sub(b.ticked)
	b.ticked = now
	if pause <= standstill {
		return now, false
	}
	stood = now.Sub(b.stood) > calm
	b.stood = now
	if stood {
		b.last = pause
	}
	return now, stood
}

// read returns how many requests were read since the last probe.
func (b *backlog) read() (n int64) {
	for _, s := range b.services {
		n += s.crowd.sinceProbe()
	}
	return n
}

func (c *crowd) sinceProbe() int64 { return c.read.Load() - c.before }

// send sends a probe.
func (b *backlog) send(ctx context.Context) (back <-chan struct{}) {
	for _, s := range b.services {
		s.crowd.before = s.crowd.read.Load()
	}
	b.sent = time.Now()
	return b.probe(ctx)
}

// follow sends a probe. If it takes long, a service leaves, and a new probe shows when the backlog is answered: it comes
// back behind the last request.
func (b *backlog) follow(ctx context.Context, ticks <-chan time.Time) {
	back := b.send(ctx)
	read, readAt := int64(0), b.sent
	for {
		select {
		case <-ctx.Done():
			return
		case <-back:
			b.last = time.Since(b.sent)
			b.enter(ctx, false)
			return
		case <-ticks:
			now, stood := b.tick()
			if stood {
				b.sent = now
			}
			if n := b.read(); n != read {
				read, readAt = n, now
			}
			switch {
			case !b.left.IsZero() && now.Sub(readAt) >= deliversAgain:
				// The probe waits in the queue of another subscription, for example for the records of many tags.
				b.enter(ctx, true)
				return
			case now.Sub(b.sent) >= max(b.late, b.last) && now.Sub(readAt) < probeEvery && b.leave(ctx, now):
				back = b.send(ctx)
				read, readAt, b.last = 0, b.sent, 0
			}
		}
	}
}

// leave makes the service leave that has read most since the last probe, and reports whether there is one. It must have read a
// quarter of all: beside the backlog of a service that is out, others are not the cause. The caller makes sure that NATS delivers
// requests, see [Generator.mayLeave].
func (b *backlog) leave(ctx context.Context, now time.Time) bool {
	var busiest *issuer
	most := max(b.read()/4, fewRequests)
	for _, s := range b.services {
		if read := s.crowd.sinceProbe(); read >= most && !s.crowd.aside.Load() {
			busiest, most = s, read
		}
	}
	if busiest == nil {
		return false
	}
	if b.leaves == 0 {
		b.log.Warn("more requests come than this generator can answer: it leaves the queue group for moments", "service", busiest.name)
	}
	if b.left.IsZero() {
		b.left = now
	}
	b.leaves++
	busiest.crowd.aside.Store(true)
	b.step(ctx)
	return true
}

// enter makes the services enter again that have left, and adapts how long requests may wait. mistaken: there was no backlog.
func (b *backlog) enter(ctx context.Context, mistaken bool) {
	if b.left.IsZero() {
		return
	}
	b.entered = time.Now()
	took := b.entered.Sub(b.left)
	switch {
	case mistaken:
		b.late = min(2*b.late, mostLate)
	case took > longBacklog:
		b.late = max(b.late/2, leastLate)
	case took < shortBacklog && b.late < usuallyLate:
		b.late = min(2*b.late, usuallyLate)
	}
	b.left, b.last = time.Time{}, 0
	for _, s := range b.services {
		s.crowd.aside.Store(false)
	}
	b.step(ctx)
}

// watchBacklog keeps the backlog short. An embedded NATS server shares the processor with the generator, and for it a
// refusal costs about as much as an answer. So there nothing is gained.
func (g *Generator) watchBacklog(ctx context.Context) {
	if g.cfg.Conn.Opts.InProcessServer != nil {
		return
	}
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	b := backlog{log: g.log, services: []*issuer{g.segments, g.snowflakes}, probe: g.probe, step: g.step}
	b.run(ctx, ticker.C)
}

// probe sends a ping to NATS. Its pong comes behind the requests that NATS passed on before, and a barrier shows when they have
// passed the queues of nats.go.
func (g *Generator) probe(ctx context.Context) <-chan struct{} {
	back := make(chan struct{})
	passed := func() { close(back) }
	g.tasks.start(func() {
		ctx, cancel := context.WithTimeout(ctx, lostProbe)
		defer cancel()
		if g.cfg.Conn.FlushWithContext(ctx) != nil || g.cfg.Conn.Barrier(passed) != nil {
			passed()
		}
	})
	return back
}

// step makes serve look at the queue groups, and waits until it has.
func (g *Generator) step(ctx context.Context) {
	done := make(chan struct{})
	select {
	case g.steps <- done:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

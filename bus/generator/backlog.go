package generator

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// tooLate is how long requests may wait before NATS passes on only so many: longer than a burst or a pause of the
	// process delays them, and less than the 500 ms that the most impatient callers wait.
	tooLate = 150 * time.Millisecond
	// backlogLasts is how long the answers to all requests should take that NATS has passed on in an overload.
	backlogLasts = 150 * time.Millisecond
	// probeEvery is how often a busy generator sends a probe. One costs 0.1 to 0.3 ms of processor time.
	probeEvery = 100 * time.Millisecond
	// lostProbe is after how long nobody waits for a probe any more.
	lostProbe = 5 * time.Second
	// tickEvery is how often it looks whether a probe is late.
	tickEvery = 20 * time.Millisecond
	// busy is how many requests it must read between two probes. It has no backlog if it reads fewer.
	busy = 100
	// standstill is how late a tick may come in a process that runs.
	standstill = 3 * tickEvery
	// fewRequests are no backlog, however long they wait. The machine is slow, and would not be faster without them.
	fewRequests = 500
	// calm is how long no probe may be lost, or take more than half of backlogLasts, before an overload is over.
	calm = 5 * time.Second
)

// backlog keeps the backlog of a generator short if more requests come than it can answer: those that have come and
// wait. Then NATS passes on only as many as the generator answers in backlogLasts, see [credit]. NATS gives others to
// other generators. If there is none, NATS refuses them at once ("no responders").
//
// The generator cannot refuse them itself, because reading a request costs about as much as answering it. It cannot
// count them either, because they wait in NATS servers, in TCP and in nats.go. So it sends a probe the same way, and
// measures its time.
//
// The fields and methods belong to run.
type backlog struct {
	log      *slog.Logger
	services []*issuer
	// probe returns a channel that is closed when the callbacks of all requests have ended that NATS passed on before.
	probe func(context.Context) <-chan struct{}
	// step makes the services subscribe as crowd.limited says.
	step func(context.Context)
	// limitable reports whether a service may have a limit.
	limitable func(*issuer) bool
	// refused tells that batches were refused since the last probe, see [concealing].
	refused *atomic.Bool
	// overloads counts the probes that were late or lost because many requests were before them, and those before which
	// batches were refused.
	overloads *atomic.Int64

	counted bool          // the last probe is in overloads
	sent    time.Time     // the last probe
	last    time.Duration // how long it took, or how long the process stood still before it
	ticked  time.Time     // the last tick
	stood   time.Time     // when a tick last came too late
	fastest float64       // requests that it answered in a second of this overload
}

// crowd is what the backlog knows of a service.
type crowd struct {
	read    atomic.Int64 // requests, since the start
	limited atomic.Bool  // NATS must not pass on more than window requests
	window  atomic.Int64

	// Owned by backlog.run.
	before int64     // requests that were read before the last probe
	late   time.Time // when a probe was last lost, or took more than half of backlogLasts because of this service
}

// run watches at each tick, every tickEvery, until the context is done.
func (b *backlog) run(ctx context.Context, ticks <-chan time.Time) {
	b.ticked = time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			now := b.tick()
			b.end(ctx, now)
			if now.Sub(b.sent) >= probeEvery && b.read() >= busy {
				b.follow(ctx, ticks)
			}
		}
	}
}

// tick notes a tick. If the process stood still before it, a probe may take as long. What came meanwhile is no sign of
// an overload: it becomes less if fewer requests come than the generator answers. A process that stands still often
// gets no such allowance.
func (b *backlog) tick() (now time.Time) {
	now = time.Now()
	pause := now.Sub(b.ticked)
	b.ticked = now
	if pause <= standstill {
		return now
	}
	if now.Sub(b.stood) > calm {
		b.last = pause
	}
	b.stood = now
	return now
}

// read returns how many requests were read since the last probe.
func (b *backlog) read() (n int64) {
	for _, s := range b.services {
		n += s.crowd.sinceProbe()
	}
	return n
}

func (c *crowd) sinceProbe() int64 { return c.read.Load() - c.before }

// follow sends a probe, and waits until it is back. If it takes long, a service gets a limit.
func (b *backlog) follow(ctx context.Context, ticks <-chan time.Time) {
	for _, s := range b.services {
		s.crowd.before = s.crowd.read.Load()
	}
	b.sent, b.counted = time.Now(), false
	back := b.probe(ctx)
	read, readAt := int64(0), b.sent
	limits := len(b.limited())
	for {
		select {
		case <-ctx.Done():
			return
		case <-back:
			b.last = time.Since(b.sent)
			if b.refused.Swap(false) {
				b.count(0)
			}
			if limits > 0 && len(b.limited()) == limits { // else what had come before the limit made it late
				b.adapt(b.last)
			}
			return
		case <-ticks:
			now := b.tick()
			if now.Sub(b.sent) > lostProbe {
				b.count(fewRequests)
				for _, s := range b.limited() {
					s.crowd.late = now // it may be behind what came before the limit
				}
				return
			}
			if n := b.read(); n != read {
				read, readAt = n, now
			}
			// While NATS delivers nothing, a subscription must not be changed, see [Generator.mayLeave].
			if took := now.Sub(b.sent); took >= max(tooLate, b.last) && now.Sub(readAt) < probeEvery {
				b.count(fewRequests)
				b.limit(ctx, took)
			}
		}
	}
}

// count counts an overload, once for each probe, if at least so many requests were read since the probe was sent. It
// does not matter whether a service can have a limit.
func (b *backlog) count(least int64) {
	if !b.counted && b.read() >= least {
		b.counted = true
		b.overloads.Add(1)
	}
}

// limit gives the service a limit that has read most since the last probe. It must have read a quarter of all: beside
// the backlog of another service it is not the cause.
func (b *backlog) limit(ctx context.Context, took time.Duration) {
	var busiest *issuer
	most := max(b.read()/4, fewRequests)
	for _, s := range b.services {
		if read := s.crowd.sinceProbe(); read >= most && !s.crowd.limited.Load() && b.limitable(s) {
			busiest, most = s, read
		}
	}
	if busiest == nil {
		return
	}
	b.fastest = float64(b.read()) / took.Seconds()
	busiest.crowd.late = time.Now()
	busiest.crowd.window.Store(fewRequests) // before somebody reads that it is limited
	busiest.crowd.limited.Store(true)
	b.share(b.fastest * backlogLasts.Seconds())
	b.log.Warn("more requests come than this generator can answer: NATS passes on a part of them", "service", busiest.name)
	b.step(ctx)
}

// limited returns the services with a limit.
func (b *backlog) limited() (list []*issuer) {
	for _, s := range b.services {
		if s.crowd.limited.Load() {
			list = append(list, s)
		}
	}
	return list
}

// share divides the requests that may wait among the services with a limit.
func (b *backlog) share(all float64) {
	limited := b.limited()
	for _, s := range limited {
		s.crowd.window.Store(max(int64(all)/int64(len(limited)), fewRequests))
	}
}

// window is how many requests may wait.
func (b *backlog) window() (all float64) {
	for _, s := range b.limited() {
		all += float64(s.crowd.window.Load())
	}
	return all
}

// adapt adapts how many requests may wait to the time that a probe took.
func (b *backlog) adapt(took time.Duration) {
	read, window := b.read(), b.window()
	rate := float64(read) / took.Seconds()
	if took < backlogLasts/2 || float64(read) < window/2 { // few waited: if it took long, the process hardly ran
		b.share(min(2*window, b.fastest*backlogLasts.Seconds()))
		return
	}
	b.count(0)
	b.fastest = max(b.fastest, rate)
	b.share((window + rate*backlogLasts.Seconds()) / 2) // one pause of the process should not count much
	for _, s := range b.limited() {
		if s.crowd.sinceProbe() >= read/4 {
			s.crowd.late = time.Now()
		}
	}
}

// end ends the limits of services that have been calm.
func (b *backlog) end(ctx context.Context, now time.Time) {
	for _, s := range b.limited() {
		if now.Sub(s.crowd.late) > calm {
			b.log.Info("the overload is over", "service", s.name)
			s.crowd.limited.Store(false)
			b.step(ctx)
		}
	}
}

// watchBacklog keeps the backlog short.
func (g *Generator) watchBacklog(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	b := backlog{log: g.log, services: []*issuer{g.segments, g.snowflakes}, probe: g.probe, step: g.step,
		limitable: (*issuer).limitable, refused: &g.concealing.refused, overloads: &g.counts.overloads}
	b.run(ctx, ticker.C)
}

// probe sends a ping to NATS. Its pong comes behind the requests that NATS passed on before, and a barrier shows when
// they have passed the queues of nats.go.
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

// step makes serve look at the subscriptions, and waits until it has.
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

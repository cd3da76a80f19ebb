package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

// Run serves until the context is done, and then drains: it leaves its queue groups, answers all
// requests that it has accepted, publishes its events and closes the connection. Run fails if the
// generator does not belong here, does not hear its peers, is refused by the registry of workers
// (see [snowflake.ErrRefused]), or if its connection is closed for good. Then it refuses requests
// that wait at once.
func (g *Generator) Run(ctx context.Context) error {
	r := new(run)
	g.phase.life, r.endLife = context.WithCancel(context.WithoutCancel(ctx))
	g.subscriptions.watch()
	r.closed = g.cfg.Conn.StatusChanged(nats.CLOSED)
	status := g.cfg.Conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	connected := g.cfg.Conn.StatusChanged(nats.CONNECTED)
	r.events = background(g.outbox.Run)
	r.looks = background((&lostAlerts{base: g.base}).run, g.checks.run,
		func(ctx context.Context) { g.learner.run(ctx, connected) })
	r.queues = background(g.segments.queue.run, g.snowflakes.queue.run)
	err := g.listen()
	if err == nil { // otherwise neither work nor flakes must begin
		r.heartbeats = background(g.heartbeats.run)
		r.work = background(g.preparation.run)
		r.flakes = background(g.flakes.run)
		err = g.serve(ctx, r, status)
	}
	g.stop(r, err)
	return err
}

// run is what stop must end.
type run struct {
	events, looks, queues, heartbeats, work, flakes stopper
	leaf                                            micro.Service // nil: not added yet
	endLife                                         context.CancelFunc
	closed                                          <-chan nats.Status
}

// listen subscribes to what the other generators send. It comes before anything is served,
// because an operator's change must reach all generators.
func (g *Generator) listen() error {
	before := g.cfg.Conn.LastError()
	self := "." + g.group.self
	handlers := map[string]nats.MsgHandler{
		wire.SubjectPresence:    g.heartbeats.heard,
		wire.SubjectRecord:      g.exchange.heardPush,
		wire.SubjectTake + self: g.lender.heard,
		wire.SubjectGive + self: g.handover.heardGive,

		wire.SubjectAdmin + self + ".>": g.admin.heard,
	}
	for subject, f := range handlers {
		if _, err := g.cfg.Conn.Subscribe(subject, f); err != nil {
			return fmt.Errorf("subscribing to %s: %w", subject, err)
		}
	}
	g.segments.health.since, g.snowflakes.health.since = time.Now(), time.Now()
	g.group.away.begin(at(time.Now()), g.link.reconnects())
	if err := g.heartbeats.announce(); err != nil { // the peers answer with their heartbeats
		return err
	}
	err := wire.PublishDenied(g.cfg.Conn, before, func(s string) bool { return s == wire.SubjectPresence })
	for subject := range handlers {
		err = cmp.Or(err, wire.SubscriptionDenied(g.cfg.Conn, before, subject))
	}
	if err != nil {
		return fmt.Errorf("generators must hear each other: %w", err)
	}
	return nil
}

// stop ends everything that was started. why is the error that ended the generator; nil: the
// context ended it.
func (g *Generator) stop(r *run, why error) {
	if why != nil {
		g.phase.serving.Store(false)
	}
	g.phase.draining.Store(true)
	g.heartbeats.now()
	// Leave, so that no new requests come, and finish those that are here. A generator that failed
	// must not reserve for these.
	ctx, cancel := g.drainTime()
	defer cancel()
	if why == nil {
		g.awaitOthers(ctx)
	}
	g.leave(ctx, r)
	if why == nil {
		g.requests.wait(ctx)
		r.work.stop() // no refill brings more
		g.handover.run(ctx)
		g.requests.wait(ctx) // those that came meanwhile borrow
	}

	// Refuse the requests that still wait.
	r.work.stop()
	r.flakes.stop()
	r.looks.stop()
	g.group.away.end()
	r.endLife()
	g.requests.close()
	g.tasks.close()

	if g.phase.prepared.Load() { // so the start was published
		g.outbox.Publish(g.nodeEvent("stopped"))
	}
	r.events.stop()
	r.heartbeats.stop()
	g.heartbeats.send(heartbeat{Gone: true}) // not before: until here a change of max_id waits for this generator
	// The last callbacks are answered from memory while the connection drains.
	if err := g.cfg.Conn.Drain(); err == nil {
		<-r.closed
	}
	r.queues.stop()
	if err := g.flakes.Close(); err != nil {
		g.log.Warn("the file of the worker cannot be written: the next start waits until the clock has passed the "+
			"time that the file reserves", "error", err)
	}
}

const (
	// othersTime is a little longer than it usually takes to hear a heartbeat and to enter a queue
	// group.
	othersTime = 100 * time.Millisecond
	// othersAtMost bounds the wait for a generator that takes longer.
	othersAtMost = 2 * time.Second
)

// awaitOthers waits while generators that had stepped aside come back, because they have heard that
// this one leaves. Without it a request could find no generator. If there is no other generator, it
// refuses new requests while those wait that were accepted, or until another generator comes, so
// that callers learn why they get no IDs.
func (g *Generator) awaitOthers(ctx context.Context) {
	switch {
	case !g.cfg.Conn.IsConnected():
	case len(g.group.present(time.Now())) > 0:
		time.Sleep(othersTime)
		ctx, cancel := context.WithTimeout(ctx, othersAtMost)
		defer cancel()
		until(ctx, g.othersServe)
	default:
		if err := g.cfg.Conn.FlushWithContext(ctx); err != nil { // what came before is accepted
			g.log.Debug("NATS does not answer", "error", err)
		}
		g.segments.queue.do(g.segments.queue.drain)
		g.snowflakes.queue.do(g.snowflakes.queue.drain)
		g.phase.refusing.Store(true)
		until(ctx, func() bool { return g.requests.none() || len(g.group.present(time.Now())) > 0 })
	}
}

// othersServe reports whether no generator is aside, or others can serve anyway.
func (g *Generator) othersServe() bool {
	is := func(property func(heartbeat) bool) bool { return g.group.anyPeer(time.Now(), time.Time{}, property) }
	return !is(func(b heartbeat) bool { return b.Aside }) || is(g.segments.offers) && is(g.snowflakes.offers)
}

// leave leaves all queue groups, and waits until the requests that NATS has passed on are answered,
// or wait.
func (g *Generator) leave(ctx context.Context, r *run) {
	defer g.phase.refusing.Store(false) // what still comes is answered
	var err error
	if r.leaf != nil {
		err = r.leaf.Stop()
	}
	g.segments.close()
	g.snowflakes.close()
	if err := errors.Join(err, g.link.flush()); err != nil {
		g.log.Warn("the queue groups could not be left in order", "error", err) // NATS is away
	}
	until(ctx, func() bool { return left(g.segments, g.snowflakes) })
}

// degradedDrain is how long requests wait at the end of a generator that has lost its
// embedded NATS server. Hardly any is answered, and the next start must not be late.
const degradedDrain = time.Second

// drainTime is the time for the answers to the requests that were accepted.
func (g *Generator) drainTime() (context.Context, context.CancelFunc) {
	most := g.cfg.DrainTimeout
	if g.cfg.NATSErr() != nil {
		most = min(most, degradedDrain)
	}
	return context.WithTimeout(context.Background(), most)
}

const (
	// startTimeout is how long a start waits for the store and a worker. Then the generator
	// serves without them, and refuses requests with the reason.
	startTimeout = 2 * time.Second
	// lookEvery is how often a generator looks whether it should leave or enter a queue group.
	lookEvery = 200 * time.Millisecond
)

// serve is the main loop of a generator. It begins to answer requests when the store and a worker
// are there, or after startTimeout. It returns when the context is done, or with the error
// that ends the generator.
func (g *Generator) serve(ctx context.Context, r *run, status <-chan nats.Status) error {
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	late := time.After(startTimeout)
	starting := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-g.phase.failed:
			return err
		case s := <-status:
			if s == nats.CLOSED {
				return errors.Join(errors.New("the connection to NATS is closed for good"), g.cfg.Conn.LastError())
			}
			signal(g.heartbeats.changed)
		case <-g.group.look:
		case now := <-looks.C:
			g.alerts.look(now)
			if n := g.cfg.Numbers; n != nil && errors.Is(n.Err(), allocator.ErrRefused) {
				return n.Err() // it is another installation's
			}
		case <-late:
			starting = false
		}
		g.spreading.step(time.Now())
		g.alloc.Share(1 + g.group.count(time.Now(), g.segments.offers))
		switch {
		case g.phase.serving.Load():
			if err := g.stepAside(); err != nil {
				g.log.Error("a queue group cannot be left or entered; trying again", "error", err)
			}
		case !starting || g.phase.prepared.Load() && g.snowflakes.healthy() == nil:
			if err := g.begin(r); err != nil {
				return err
			}
		}
	}
}

// begin enters the queue groups. From then on the generator answers requests.
func (g *Generator) begin(r *run) (err error) {
	if !g.phase.prepared.Load() {
		g.log.Warn("the store is not available yet; until it is, requests are refused with store_unavailable")
	}
	if why := g.snowflakes.healthy(); why != nil {
		g.log.Warn("snowflakes are not available yet; until they are, requests are refused with the reason",
			"reason", why)
	}
	if err := mayAnswer(g.cfg.Conn); err != nil {
		return err
	}
	if r.leaf, err = g.addLeafService(); err != nil {
		return err
	}
	if err := g.stepAside(); err != nil {
		return err
	}
	if err := g.link.flush(); err != nil {
		return fmt.Errorf("NATS did not confirm the subscriptions: %w", err)
	}
	if why := refusedSubscription(g.cfg.Conn, g.cfg.Conn.LastError()); why != nil { // nats.go reports it a little later
		return why
	}
	g.phase.serving.Store(true)
	close(g.phase.begun)
	g.heartbeats.now()
	if g.cfg.Ready != nil {
		g.cfg.Ready()
	}
	return nil
}

// stepAside leaves or enters the queue groups of both services, see [service.stepAside].
func (g *Generator) stepAside() error {
	now := time.Now()
	if g.group.away.mustReopen() {
		if err := errors.Join(g.segments.reopen(), g.snowflakes.reopen()); err != nil {
			return err
		}
		defer g.group.away.reopened()
	}
	return errors.Join(g.segments.stepAside(now), g.snowflakes.stepAside(now))
}

package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// startTimeout is how long a start waits for the store and a worker; then it
	// goes on, and answers with what is missing until it is there.
	startTimeout = 2 * time.Second
	startLook    = 5 * time.Millisecond
	// stepTimeout bounds one attempt at one step of the preparation. JetStream
	// may leave a request without an answer while it elects a leader.
	stepTimeout  = 5 * time.Second
	prepareAgain = time.Second
	flushWait    = 5 * time.Second
)

// listen hears the other generators from now on, before anything is served: an
// operator's change must reach all.
func (g *Generator) listen() error {
	before := g.cfg.Conn.LastError()
	handlers := map[string]nats.MsgHandler{
		wire.SubjectPresence:     g.heard,
		wire.SubjectTagChanged:   g.changed,
		wire.SubjectReserved:     g.othersReserved,
		wire.RefillSubject + ">": g.witnessed,
	}
	for subject, f := range handlers {
		if _, err := g.cfg.Conn.Subscribe(subject, f); err != nil {
			return fmt.Errorf("subscribing to %s: %w", subject, err)
		}
	}
	g.segments.sick, g.snowflakes.sick = time.Now(), time.Now()
	g.listening = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), flushWait)
	defer cancel()
	if err := g.greet(ctx); err != nil { // the others answer with theirs
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

// work prepares, and then refills until the context is done.
func (g *Generator) work(ctx context.Context, ready chan<- struct{}, refused chan<- error) {
	if err := g.prepare(ctx); err != nil {
		refused <- err
		<-ctx.Done()
	} else {
		close(ready)
	}
	g.alloc.Run(ctx)
}

// start waits for the store and a worker, enters the queue groups, and says when requests
// are answered.
func (g *Generator) start(ctx context.Context, s *services, ready <-chan struct{}, refused <-chan error, status <-chan nats.Status) error {
	late := time.After(startTimeout)
	look := time.NewTicker(startLook)
	defer look.Stop()
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	for waiting := true; waiting; {
		select {
		case <-ready:
			ready = nil
		case <-beats.C:
			g.beat(false)
		case <-look.C:
			waiting = ready != nil || g.snowflakes.healthy() != nil
		case s := <-status:
			if err := g.connection(s); err != nil {
				return err
			}
		case err := <-refused:
			return err
		case err := <-g.rival:
			return err
		case <-ctx.Done():
			return nil
		case <-late:
			waiting = false
			if ready != nil {
				g.log.Warn("the store is not there yet; requests are answered with store_unavailable until it is")
			}
			if why := g.snowflakes.healthy(); why != nil {
				g.log.Warn("there are no snowflakes yet; requests are answered with the reason until there are", "reason", why)
			}
		}
	}
	if err := s.start(g); err != nil {
		return err
	}
	if err := errors.Join(g.segments.enter(time.Now()), g.snowflakes.enter(time.Now())); err != nil {
		return err
	}
	if err := g.flush(); err != nil {
		return fmt.Errorf("NATS did not confirm the subscriptions: %w", err)
	}
	g.serving.Store(true)
	g.beat(false)
	if g.cfg.Ready != nil {
		g.cfg.Ready()
	}
	return nil
}

// flush waits until the server has taken in what was sent.
func (g *Generator) flush() error { return g.cfg.Conn.FlushTimeout(flushWait) }

// attend keeps the generator in its place among the others until the context
// is done, or it cannot serve any more.
func (g *Generator) attend(ctx context.Context, refused <-chan error, status <-chan nats.Status) error {
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	looks := time.NewTicker(asideEvery)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-refused:
			return err
		case err := <-g.rival:
			return err
		case s := <-status:
			if err := g.connection(s); err != nil {
				return err
			}
		case <-beats.C:
			g.beat(false)
		case now := <-looks.C:
			g.tellStore()
			g.tellNATS(now)
			if err := g.cfg.StoreErr(); errors.Is(err, allocator.ErrRefused) {
				return err
			}
			g.segments.stepAside(now)
			g.snowflakes.stepAside(now)
		case <-g.presence.turned: // one that can serve may be leaving: do not wait for the next look
			g.segments.stepAside(time.Now())
			g.snowflakes.stepAside(time.Now())
		case <-g.news:
			g.beat(false)
		}
	}
}

// connection takes in what became of the connection to NATS. An error says that it
// is gone for good.
func (g *Generator) connection(s nats.Status) error {
	if s == nats.CLOSED {
		return errors.Join(errors.New("the connection to NATS is closed for good"), g.cfg.Conn.LastError())
	}
	g.beat(false)
	g.tasks.start(func() { g.readAgain(g.life) })
	return nil
}

// tellStore logs when refills begin to fail, and when none fails any more: events tell
// of each tag, and a log for people of the store.
func (g *Generator) tellStore() {
	switch f := g.alloc.Failing(); {
	case f.Store != nil && !g.storeFails:
		g.storeFails = true
		g.log.Warn("refills fail: IDs come from memory alone", "error", f.Store, "tags", f.Tags)
	case f.Store == nil && g.storeFails:
		g.storeFails = false
		g.log.Info("refills succeed again")
	}
}

// prepare enters the installation and opens the store; it tries each step again
// and again until it is done, refused, or the context ends. The evidence comes
// before the store is opened: it is known how far others were when the first
// range is reserved.
func (g *Generator) prepare(ctx context.Context) error {
	for _, step := range []func(context.Context) error{g.join, g.lookForStreams, g.readAgain, g.open, g.ensureTags} {
		if err := g.persist(ctx, step); err != nil {
			return err
		}
	}
	g.prepared.Store(true)
	g.publish(g.nodeEvent("started"))
	return nil
}

// join enters the installation, and tells the others which one it is.
func (g *Generator) join(ctx context.Context) error {
	identity, err := g.cfg.Join(ctx, g.begin)
	if err != nil {
		g.unjoined.Store(&err)
		return err
	}
	if g.identity.Swap(&identity) == nil {
		close(g.joined)
	}
	for _, b := range g.presence.present(time.Now()) {
		g.checkRival(b)
	}
	g.beat(false)
	return nil
}

// lookForStreams says it if a stream keeps the requests: its acknowledgement
// reaches the caller before the IDs do.
func (g *Generator) lookForStreams(ctx context.Context) error {
	for _, subject := range []string{bus.SubjectSegment + ".>", bus.SubjectSnowflake} {
		name, err := g.cfg.JS.StreamNameBySubject(ctx, subject)
		switch {
		case err == nil:
			g.log.Error("a stream covers the subjects of requests: callers get its acknowledgement in place of IDs; change its subjects",
				"stream", name, "subjects", subject)
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			g.log.Debug("it is not known whether a stream covers the subjects of requests", "error", err)
		}
	}
	return nil
}

// open opens the store: from now on tags may be in memory.
func (g *Generator) open(ctx context.Context) error {
	if err := g.cfg.Open(ctx); err != nil {
		return err
	}
	g.opened.Store(true)
	return nil
}

// persist tries a step until it is done, refused, or the context ends.
func (g *Generator) persist(ctx context.Context, step func(context.Context) error) error {
	told := ""
	for {
		attempt, cancel := context.WithTimeout(ctx, stepTimeout)
		err := step(attempt)
		cancel()
		if err == nil || errors.Is(err, allocator.ErrRefused) || ctx.Err() != nil {
			return err
		}
		g.unready.Store(&err)
		if told != err.Error() {
			told = err.Error()
			g.log.Warn("segments cannot be served yet; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(prepareAgain):
		}
	}
}

// ensureTags creates the tags that were asked for at the start.
func (g *Generator) ensureTags(ctx context.Context) error {
	for _, t := range g.cfg.Tags {
		if err := g.ensure(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// ensure creates a tag. It neither changes one that is there nor revives one
// that was deleted.
func (g *Generator) ensure(ctx context.Context, t allocator.Tag) error {
	_, err := g.cfg.Store.Get(ctx, t.Name)
	switch {
	case errors.Is(err, allocator.ErrDeleted):
		g.log.Warn("the tag was deleted and stays so; `leaf tag add` creates it again", "tag", t.Name)
		return nil
	case errors.Is(err, allocator.ErrDamaged): // no reason not to serve the others
		g.log.Error("a tag that was asked for cannot be served", "tag", t.Name, "error", err)
		return nil
	case !errors.Is(err, allocator.ErrUnknownTag):
		return err
	}
	_, _, err = g.create(ctx, t)
	switch {
	case errors.Is(err, allocator.ErrBadValue):
		g.log.Error("a tag that was asked for cannot be made", "tag", t.Name, "error", err)
		return nil
	case errors.Is(err, allocator.ErrExists): // another generator was first, or the store takes another name for it
		g.log.Info("a tag that was asked for was not made", "tag", t.Name, "reason", err)
		return nil
	}
	return err
}

// greet sends a beat and waits until NATS has passed it on.
func (g *Generator) greet(ctx context.Context) error {
	number := g.beat(false)
	if err := g.cfg.Conn.FlushWithContext(ctx); err != nil {
		return err
	}
	g.presence.pulse.came(time.Now(), number)
	return nil
}

// beat tells the others that this generator is there; gone is its last word. It returns
// the beat's number.
func (g *Generator) beat(gone bool) (number uint64) {
	number = g.presence.pulse.send(time.Now())
	b := beat{Node: g.cfg.Node, ID: g.id, Number: number, UnixMS: g.cfg.Snowflake.Clock().Wall, Segment: g.canServe(g.segments), Snowflake: g.canServe(g.snowflakes), Gone: gone}
	if worker := g.flakes.Worker(); worker >= 0 && !gone {
		b.Worker = &worker
	}
	b.Lost = g.claims.workers(time.Now())
	if identity := g.identity.Load(); identity != nil {
		b.Identity = *identity
	}
	if err := g.cfg.Conn.Publish(wire.SubjectPresence, wire.Encode(b)); err != nil {
		g.log.Debug("a beat cannot be sent", "error", err)
	}
	return number
}

// heard takes in another generator's beat, and greets one that is new, so that
// it knows of this one before its first second is over.
func (g *Generator) heard(msg *nats.Msg) {
	now := time.Now()
	b, isNew := g.presence.hear(now, g.cfg.Snowflake.Clock().Wall, msg.Data)
	if isNew {
		g.beat(false)
	}
	if isNew && b.Node == g.cfg.Node {
		g.log.Warn("another generator has this one's name: nobody can tell them apart in events and metrics; give each its own (--node)", "node", b.Node)
	}
	if b.Worker != nil && *b.Worker == g.flakes.Worker() {
		g.verifyWorker() // one of the two is a clone, or the registry was restored
	}
	if !b.Gone {
		g.checkRival(b)
	}
}

// handOverTime is some time longer than a beat takes to be heard and a queue group to be entered.
const handOverTime = 100 * time.Millisecond

// handOver is the time in which generators that had stepped aside come back, as they have
// heard that this one leaves; requests are still answered. Without it they could find nobody.
func (g *Generator) handOver() {
	if g.cfg.Conn.IsConnected() && len(g.presence.present(time.Now())) > 0 {
		time.Sleep(handOverTime)
	}
}

// canServe reports whether a service can answer with IDs.
func (g *Generator) canServe(s *issuer) bool {
	return !g.draining.Load() && s.healthy() == nil
}

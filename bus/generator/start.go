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
		wire.SubjectPresence:     g.heardHeartbeat,
		wire.SubjectTagChanged:   g.heardTag,
		wire.SubjectReserved:     g.heardReserved,
		wire.RefillSubject + ">": g.heardRefill,
	}
	for subject, f := range handlers {
		if _, err := g.cfg.Conn.Subscribe(subject, f); err != nil {
			return fmt.Errorf("subscribing to %s: %w", subject, err)
		}
	}
	g.segments.unhealthySince, g.snowflakes.unhealthySince = time.Now(), time.Now()
	g.group.listening = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), flushWait)
	defer cancel()
	if err := g.announce(ctx); err != nil { // the others answer with theirs
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
func (g *Generator) work(ctx context.Context, r *run) {
	if err := g.prepare(ctx); err != nil {
		r.refused <- err
		<-ctx.Done()
	} else {
		close(r.ready)
	}
	g.alloc.Run(ctx)
}

// start waits for the store and a worker, enters the queue groups, and says when requests
// are answered.
func (g *Generator) start(ctx context.Context, r *run) error {
	ready := r.ready
	late := time.After(startTimeout)
	look := time.NewTicker(startLook)
	defer look.Stop()
	beats := time.NewTicker(heartbeatEvery)
	defer beats.Stop()
	for waiting := true; waiting; {
		select {
		case <-ready:
			ready = nil
		case <-beats.C:
			g.sendHeartbeat(false)
		case <-look.C:
			waiting = ready != nil || g.snowflakes.healthy() != nil
		case s := <-r.status:
			if err := g.connection(s); err != nil {
				return err
			}
		case err := <-r.refused:
			return err
		case err := <-g.membership.rival:
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
	if err := r.leaf.start(g); err != nil {
		return err
	}
	if err := errors.Join(g.segments.enter(time.Now()), g.snowflakes.enter(time.Now())); err != nil {
		return err
	}
	if err := g.flushConn(); err != nil {
		return fmt.Errorf("NATS did not confirm the subscriptions: %w", err)
	}
	g.phase.serving.Store(true)
	g.sendHeartbeat(false)
	if g.cfg.Ready != nil {
		g.cfg.Ready()
	}
	return nil
}

// prepare enters the installation and opens the store; it tries each step again
// and again until it is done, refused, or the context ends. The evidence comes
// before the store is opened: it is known how far others were when the first
// range is reserved.
func (g *Generator) prepare(ctx context.Context) error {
	for _, step := range []func(context.Context) error{g.join, g.warnOfStreams, g.readPeerMarks, g.open, g.ensureTags} {
		if err := g.retry(ctx, step); err != nil {
			return err
		}
	}
	g.phase.prepared.Store(true)
	g.publish(g.nodeEvent("started"))
	return nil
}

// join enters the installation, and tells the others which one it is.
func (g *Generator) join(ctx context.Context) error {
	identity, err := g.cfg.Join(ctx, g.mayCreate)
	if err != nil {
		g.membership.unjoined.Store(&err)
		return err
	}
	if g.membership.identity.Swap(&identity) == nil {
		close(g.membership.joined)
	}
	for _, b := range g.group.present(time.Now()) {
		g.checkRival(b)
	}
	g.sendHeartbeat(false)
	return nil
}

// warnOfStreams says it if a stream keeps the requests: its acknowledgement
// reaches the caller before the IDs do.
func (g *Generator) warnOfStreams(ctx context.Context) error {
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
	g.phase.opened.Store(true)
	return nil
}

// retry tries a step until it is done, refused, or the context ends.
func (g *Generator) retry(ctx context.Context, step func(context.Context) error) error {
	told := ""
	for {
		attempt, cancel := context.WithTimeout(ctx, stepTimeout)
		err := step(attempt)
		cancel()
		if err == nil || errors.Is(err, allocator.ErrRefused) || ctx.Err() != nil {
			return err
		}
		g.phase.unready.Store(&err)
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

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
	// stepTimeout bounds one attempt at one step of the preparation. JetStream
	// may leave a request without an answer while it elects a leader.
	stepTimeout  = 5 * time.Second
	prepareAgain = time.Second
	// repeatLog is how often the log repeats why the generator cannot serve.
	repeatLog = time.Minute
)

// listen subscribes to what the other generators send. It comes before anything is served,
// because an operator's change must reach all generators.
func (g *Generator) listen() error {
	before := g.cfg.Conn.LastError()
	handlers := map[string]nats.MsgHandler{
		wire.SubjectPresence:                  g.heardHeartbeat,
		wire.SubjectRecord:                    g.exchange.heardPush,
		wire.SubjectKnows:                     g.exchange.heardKnows,
		takeSubject(g.group.self):             g.heardTake,
		wire.SubjectRoom + "." + g.group.self: g.heardRoom,
		wire.SubjectGive + "." + g.group.self: g.heardGive,

		adminSubject(g.group.self) + ".>": g.admin.heard,
	}
	for subject, f := range handlers {
		if _, err := g.cfg.Conn.Subscribe(subject, f); err != nil {
			return fmt.Errorf("subscribing to %s: %w", subject, err)
		}
	}
	g.segments.health.since, g.snowflakes.health.since = time.Now(), time.Now()
	g.group.away.begin(at(time.Now()), g.reconnects())
	ctx, cancel := context.WithTimeout(context.Background(), flushWait)
	defer cancel()
	if err := g.announce(ctx); err != nil { // the peers answer with their heartbeats
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

// work prepares, and refills until the context is done. The tags of the start are created while the allocator runs: it
// knows by its watch which tags there are.
func (g *Generator) work(ctx context.Context) {
	if err := g.prepare(ctx, g.membership.join, g.warnOfStreams, g.open); err != nil {
		g.fail(err)
		<-ctx.Done()
	}
	tags := background(func(context.Context) {
		if ctx.Err() != nil {
			return
		}
		if err := g.prepare(ctx, g.tags.ensureAll); err != nil {
			g.fail(err)
			return
		}
		g.phase.prepared.Store(true)
		g.publish(g.nodeEvent("started"))
		signal(g.changed)
	})
	g.alloc.Run(ctx)
	tags.stop()
}

// prepare makes steps, and retries each one until it succeeds or is refused, or the context ends.
func (g *Generator) prepare(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := g.retry(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// retry tries a step until it succeeds or is refused, or the context ends.
func (g *Generator) retry(ctx context.Context, step func(context.Context) error) error {
	logged, at := "", time.Time{}
	for {
		attempt, cancel := context.WithTimeout(ctx, stepTimeout)
		err := step(attempt)
		cancel()
		if err == nil || errors.Is(err, allocator.ErrRefused) || ctx.Err() != nil {
			return err
		}
		g.phase.unready.Store(&err)
		if logged != err.Error() || time.Since(at) > repeatLog {
			logged, at = err.Error(), time.Now()
			g.log.Warn("segments cannot be served yet; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(prepareAgain):
		}
	}
}

// warnOfStreams logs each stream that keeps requests, or the answers to generators. The acknowledgement of a stream
// that keeps requests reaches the caller before the IDs do.
func (g *Generator) warnOfStreams(ctx context.Context) error {
	const requests = "a stream keeps the requests for IDs, so callers get its acknowledgement in place of IDs: change its subjects"
	for subject, why := range map[string]string{
		bus.SubjectSegment + ".>": requests, bus.SubjectSnowflake: requests,
		wire.SubjectInbox + ".>": "a stream keeps the keys of opaque tags, which are in the answers to generators: change its subjects",
	} {
		name, err := g.cfg.JS.StreamNameBySubject(ctx, subject)
		switch {
		case err == nil:
			g.log.Error(why, "stream", name, "subjects", subject)
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			g.log.Debug("JetStream does not say whether a stream keeps the requests for IDs", "error", err)
		}
	}
	return nil
}

// open opens the store. From then on tags may be in memory.
func (g *Generator) open(ctx context.Context) error {
	err := g.cfg.Open(ctx)
	if err == nil {
		g.phase.opened.Store(true)
	}
	return err
}

package generator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/outbox"
)

// lostAlerts publishes the alerts about lost peers and their ends. It does not use the queue of events: an alert that
// waited there while the stream was unavailable might be wrong when it is published.
type lostAlerts struct {
	node     string // this generator
	js       jetstream.JetStream
	observer Observer // nil: none
	log      *slog.Logger
	group    *group

	failed time.Time // when the stream did not answer last; owned by run
}

// run publishes until the context is done.
func (a *lostAlerts) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		a.group.present(time.Now()) // peers whose heartbeats stopped become lost ones
		steady, here := a.group.away.steadySince(time.Now())
		if here {
			for _, l := range a.group.lost.declare(time.Now(), steady, a.node) {
				a.log.Warn("a generator is lost: its heartbeats stopped, and it did not report that it ends",
					"node", l.Node, "last_heard", l.heard.UTC().Format(time.RFC3339))
			}
		}
		if err := a.publish(ctx, here); err != nil {
			a.failed = time.Now()
			a.log.Debug("alerts about lost generators cannot be published; trying again", "error", err)
		}
	}
}

// publish publishes what the stream lacks, until the stream does not answer. When it answers again, the peers may
// return with it: so they are heard first.
func (a *lostAlerts) publish(ctx context.Context, here bool) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if time.Since(a.failed) < heartbeatExpires {
		_, err := a.js.Stream(ctx, events.Stream)
		return err
	}
	for {
		l, end, ok := a.group.lost.next(time.Now(), here)
		if !ok {
			return nil
		}
		kind, id := "node.lost", fmt.Sprintf("lost.%s.%s.%d", l.Node, l.Run, l.Number)
		var body any = events.Lost{
			Node: l.Node, Run: l.Run, LastHeardMS: l.heard.UnixMilli(), Worker: l.Worker, UntilMS: l.until.UnixMilli()}
		if end {
			kind, id = "node.recovered", fmt.Sprintf("back.%s.%s.%d", l.Node, l.Run, l.Number)
			body = events.Recovered{Node: l.Node, Episode: events.EpisodeLost}
		}
		ack, err := a.js.PublishMsg(ctx, outbox.NewEventWithID(id, kind, l.Node, a.node, body))
		if err != nil {
			return err
		}
		a.group.lost.published(l, end)
		if !ack.Duplicate && a.observer != nil {
			a.observer.EventPublished("leaf." + kind)
		}
		if end {
			a.log.Info("a generator is no longer lost", "node", l.Node, "heard_or_forgotten", l.returned)
		}
	}
}

package generator

import (
	"context"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/outbox"
)

// lostAlerts publishes the alerts about lost peers and their ends. It does not use the queue of events: an alert that
// waited there while the stream was unavailable might be wrong when it is published.
type lostAlerts struct {
	*base
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
			for _, l := range a.group.lost.declare(time.Now(), steady, a.cfg.Node) {
				a.cfg.Log.Warn("a generator is lost: its heartbeats stopped, and it did not report that it ends",
					"node", l.Node, "last_heard", l.heard.UTC().Format(time.RFC3339))
			}
		}
		if err := a.publish(ctx, here); err != nil {
			a.failed = time.Now()
			a.cfg.Log.Debug("alerts about lost generators cannot be published; trying again", "error", err)
		}
	}
}

// publish publishes what the stream lacks, until the stream does not answer. When it answers again, the peers may
// return with it: so they are heard first.
func (a *lostAlerts) publish(ctx context.Context, here bool) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if time.Since(a.failed) < heartbeatExpires {
		_, err := a.cfg.JS.Stream(ctx, events.Stream)
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
		ack, err := a.cfg.JS.PublishMsg(ctx, outbox.NewEventWithID(id, kind, l.Node, a.cfg.Node, body))
		if err != nil {
			return err
		}
		a.group.lost.published(l, end)
		if !ack.Duplicate && a.cfg.Observer != nil {
			a.cfg.Observer.EventPublished("leaf." + kind)
		}
		if end {
			a.cfg.Log.Info("a generator is no longer lost", "node", l.Node, "heard_or_forgotten", l.returned)
		}
	}
}

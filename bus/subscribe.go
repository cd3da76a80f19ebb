package bus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrNoJetStream says that events can only be followed live.
	ErrNoJetStream = errors.New("this NATS has no JetStream, so no events are kept: follow them live (Live, or leaf events --live)")

	errLeft = errors.New("the loop was left")
)

// EventOption selects which events [Client.Events] follows, and how.
type EventOption func(*eventOptions)

type eventOptions struct {
	alerts  bool
	ends    bool
	since   time.Time
	name    string
	durable bool
	live    bool
}

// AlertsOnly selects alerts: the events at which an operator should look.
func AlertsOnly() EventOption { return func(o *eventOptions) { o.alerts = true } }

// Episodes selects alerts and the events that end them: those with the body [RecoveredEvent] or
// [NodeEvent], and leaf.worker.acquired. A restart ends the alerts of the process before. Episodes
// cannot be combined with [Live].
func Episodes() EventOption { return func(o *eventOptions) { o.alerts, o.ends = true, true } }

// Since begins with the events at t, if the stream still has them. Default, also for the zero time: from
// now on.
func Since(t time.Time) EventOption { return func(o *eventOptions) { o.since = t } }

// Durable makes the server store the position under this name. The next loop with the same name, also in
// another process, goes on there. The first use creates the durable consumer, which begins at [Since].
// Loops with the same name share the events.
//
// An event is acknowledged when the loop asks for the next one. An event at which the loop is left comes
// again at once. An event whose process died, or that takes longer than 30 seconds, comes again after
// these 30 seconds. So an event comes at least once, with the same ID each time. An event that comes again
// may come after younger ones. All loops with one name work on at most 512 events at a time.
//
// A durable consumer stays until it is deleted: `nats consumer rm LEAF_EVENTS NAME`, or DeleteConsumer of
// JetStream. That ends its loops with an error. An existing consumer with other settings is used as it is. It
// is an error if these would lose events, or select other events than the loop does.
func Durable(name string) EventOption {
	return func(o *eventOptions) { o.name, o.durable = name, true }
}

// Live receives the events as generators publish them, without JetStream. It misses the events during an
// interruption of the connection. It cannot be combined with [Since] or [Durable].
func Live() EventOption { return func(o *eventOptions) { o.live = true } }

// subjects returns the subjects of the selected events.
func (o *eventOptions) subjects() []string {
	switch {
	case o.ends:
		return []string{AlertSubjects, wire.RecoveredSubject, wire.NodeSubject, wire.AcquiredSubject}
	case o.alerts:
		return []string{AlertSubjects}
	}
	return []string{EventSubjects}
}

// Events yields events, from now on or as the options say, until the loop is left or the context is done,
// which is not an error. Without options it reads the stream: in order, and each event once. It goes on
// after an interruption of the connection, without a gap if the stream still has the events. With
// [Durable] events come at least once, with [Live] at most once.
//
// An error that matches [ErrNotAnEvent] is about one message, and the loop may go on. Any other error
// comes last: there is no stream yet, the connection was closed, or [ErrNoJetStream]. Only a durable
// consumer stays on the server afterwards.
func (c *Client) Events(ctx context.Context, opts ...EventOption) iter.Seq2[Event, error] {
	var o eventOptions
	for _, opt := range opts {
		opt(&o)
	}
	return func(yield func(Event, error) bool) {
		err := c.follow(ctx, o, yield)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errLeft) {
			yield(Event{}, fmt.Errorf("following the events: %w", err))
		}
	}
}

func (c *Client) follow(ctx context.Context, o eventOptions, yield func(Event, error) bool) error {
	if o.live {
		if o.durable || !o.since.IsZero() {
			return errors.New("live events are not stored: Live cannot be combined with Since or Durable")
		}
		return c.listen(ctx, o, yield)
	}
	js := c.js
	if js == nil {
		var err error
		if js, err = jetstream.New(c.nc); err != nil {
			return err
		}
	}
	f := &follower{eventOptions: o, c: c, js: js, timeout: c.setUp(), yield: yield}
	return f.run(ctx)
}

// listen is Live.
func (c *Client) listen(ctx context.Context, o eventOptions, yield func(Event, error) bool) error {
	if o.ends {
		return errors.New("alerts and their ends have several subjects: Episodes cannot be combined with Live")
	}
	sub, err := c.subscribe(ctx, o.subjects()[0])
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if errors.Is(err, nats.ErrSlowConsumer) {
			return fmt.Errorf("the loop is too slow, and events were lost: %w", err)
		}
		if err != nil {
			return err
		}
		if !yield(ParseEvent(msg.Subject, msg.Header, msg.Data)) {
			return errLeft
		}
	}
}

// subscribe subscribes, and returns when the server has the subscription.
func (c *Client) subscribe(ctx context.Context, subject string) (*nats.Subscription, error) {
	before := c.nc.LastError()
	sub, err := c.nc.SubscribeSync(subject)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.setUp())
	defer cancel()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("no answer from NATS: %w", err)
	}
	if err := wire.SubscriptionDenied(c.nc, before, subject); err != nil {
		_ = sub.Unsubscribe()
		return nil, err
	}
	return sub, nil
}

// setUp returns how long the requests before the first event may take.
func (c *Client) setUp() time.Duration {
	if c.timeout <= 0 {
		return DefaultTimeout
	}
	return c.timeout
}

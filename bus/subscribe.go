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
	// ErrNoJetStream says that events cannot be followed but live.
	ErrNoJetStream = errors.New("this NATS has no JetStream: nothing keeps events, follow them live (Live, or leaf events --live)")

	errLeft = errors.New("the loop was left")
)

// EventOption says which events [Client.Events] follows, and how.
type EventOption func(*eventOptions)

type eventOptions struct {
	alerts  bool
	ends    bool
	since   time.Time
	name    string
	durable bool
	live    bool
}

// AlertsOnly leaves out all but the events that want an operator.
func AlertsOnly() EventOption { return func(o *eventOptions) { o.alerts = true } }

// Episodes leaves out all but the alerts and the events that tell the end of one: bodies
// [RecoveredEvent], and [NodeEvent] and leaf.worker.acquired, after which the generator
// knows nothing of what its process before had told. It cannot go with [Live].
func Episodes() EventOption { return func(o *eventOptions) { o.alerts, o.ends = true, true } }

// Since begins with what happened at t, as far as the stream has it. Default,
// and that of the zero time: from now on.
func Since(t time.Time) EventOption { return func(o *eventOptions) { o.since = t } }

// Durable lets the server note, under this name, how far the events were handled:
// whoever follows under it next, in another process too, goes on there. It is
// made at its first use, from [Since] on. Several who follow under one name at a time
// share the events.
//
// Each event is acknowledged when the loop asks for the next one. One that the loop
// was left at comes again at once; one that a process died at, or that is not done with after 30
// seconds, comes again then: an event comes at least once, with the same ID each time, and one that
// comes again may come after younger ones. At most 512 are worked on at a time by all together.
//
// A durable consumer stays until it is deleted: `nats consumer rm LEAF_EVENTS NAME`,
// or DeleteConsumer of JetStream. That ends the loops that use it with an error. One that was
// made with other settings is used as it is, but for what would lose events or bring others
// than those that were asked for: that is an error.
func Durable(name string) EventOption {
	return func(o *eventOptions) { o.name, o.durable = name, true }
}

// Live hears the events as they are told, and needs no JetStream. What happens
// while the connection is away is missed. It cannot go with [Since] or [Durable].
func Live() EventOption { return func(o *eventOptions) { o.live = true } }

// subjects are those of the events that are wanted.
func (o *eventOptions) subjects() []string {
	switch {
	case o.ends:
		return []string{AlertSubjects, wire.RecoveredSubject, wire.NodeSubject, wire.AcquiredSubject}
	case o.alerts:
		return []string{AlertSubjects}
	}
	return []string{EventSubjects}
}

// Events follows what happens, from now on or as the options say, until the context
// is done, which is no error, or the loop is left. Without options it
// reads the stream of events, in order and each event once; interruptions of the connection heal by
// themselves, without a gap as long as the stream keeps the events. With [Durable] events come at
// least once, with [Live] at most once.
//
// An error that matches [ErrNotAnEvent] is about one message that is none, and the loop may go on.
// Any other error is the last that comes: there is no stream yet, the connection was
// closed, or [ErrNoJetStream]. Nothing is left on the server afterwards but what is durable.
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
			return errors.New("what is heard live is kept nowhere: Live goes with neither Since nor Durable")
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
		return errors.New("alerts and their ends come on several subjects: Episodes does not go with Live")
	}
	sub, err := c.hear(ctx, o.subjects()[0])
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

// hear subscribes. When it returns, the server knows it.
func (c *Client) hear(ctx context.Context, subject string) (*nats.Subscription, error) {
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

// setUp bounds what must be done before there can be events.
func (c *Client) setUp() time.Duration {
	if c.timeout <= 0 {
		return DefaultTimeout
	}
	return c.timeout
}

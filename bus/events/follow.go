package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrNoJetStream says that events can only be followed live.
	ErrNoJetStream = errors.New("this NATS has no JetStream, so no events are kept: follow them live (Live, or leaf " +
		"events --live)")

	errLeft = errors.New("the loop was left")
)

// The stream of events, and its subjects.
const (
	// Stream keeps the events. It must never cover a subject of requests: callers would get the
	// stream's acknowledgement as the answer.
	Stream        = "LEAF_EVENTS"
	Subjects      = wire.SubjectEvents + ".>"
	AlertSubjects = wire.SubjectEvents + ".alert.>" // an operator should look
)

// Option selects which events [Follow] follows, and how.
type Option func(*options)

type options struct {
	alerts  bool
	ends    bool
	since   time.Time
	name    string
	durable bool
	live    bool
	js      jetstream.JetStream // nil: the one of the connection's account
	timeout time.Duration
}

// AlertsOnly selects alerts: the events at which an operator should look.
func AlertsOnly() Option { return func(o *options) { o.alerts = true } }

// Episodes selects alerts and the events that end them: those with the body [Recovered] or
// [Node], and leaf.worker.acquired. A restart ends the alerts of the process before. Episodes
// cannot be combined with [Live].
func Episodes() Option { return func(o *options) { o.alerts, o.ends = true, true } }

// Since begins with the events at t, if the stream still has them. Default, also for the zero time: from
// now on.
func Since(t time.Time) Option { return func(o *options) { o.since = t } }

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
func Durable(name string) Option {
	return func(o *options) { o.name, o.durable = name, true }
}

// Live receives the events as generators publish them, without JetStream. It misses the events during an
// interruption of the connection. It cannot be combined with [Since] or [Durable].
func Live() Option { return func(o *options) { o.live = true } }

// JetStream makes [Follow] read from js, which must use its connection. Use it if the events are in a
// JetStream domain. Default: the account's own JetStream.
func JetStream(js jetstream.JetStream) Option { return func(o *options) { o.js = js } }

// Timeout bounds each request that is needed before the first event, and after an interruption. 0 or less, and the
// default: [bus.DefaultTimeout].
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// subjects returns the subjects of the selected events.
func (o *options) subjects() []string {
	switch {
	case o.ends:
		return []string{AlertSubjects, wire.RecoveredSubject, wire.NodeSubject, wire.AcquiredSubject}
	case o.alerts:
		return []string{AlertSubjects}
	}
	return []string{Subjects}
}

// Follow yields events, from now on or as the options say, until the loop is left or the context is done,
// which is not an error. Without options it reads the stream: in order, and each event once. It goes on
// after an interruption of the connection, without a gap if the stream still has the events. With
// [Durable] events come at least once, with [Live] at most once.
//
// An error that matches [ErrNotAnEvent] is about one message, and the loop may go on. Any other error
// comes last: there is no stream yet, the connection was closed, or [ErrNoJetStream]. Only a durable
// consumer stays on the server afterwards.
func Follow(ctx context.Context, nc *nats.Conn, opts ...Option) iter.Seq2[Event, error] {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.timeout <= 0 {
		o.timeout = bus.DefaultTimeout
	}
	return func(yield func(Event, error) bool) {
		err := o.follow(ctx, nc, yield)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errLeft) {
			yield(Event{}, fmt.Errorf("following the events: %w", err))
		}
	}
}

func (o options) follow(ctx context.Context, nc *nats.Conn, yield func(Event, error) bool) error {
	if o.live {
		if o.durable || !o.since.IsZero() {
			return errors.New("live events are not stored: Live cannot be combined with Since or Durable")
		}
		return o.listen(ctx, nc, yield)
	}
	if o.js == nil {
		var err error
		if o.js, err = jetstream.New(nc); err != nil {
			return err
		}
	}
	f := &follower{options: o, yield: yield}
	return f.run(ctx)
}

// listen is Live.
func (o options) listen(ctx context.Context, nc *nats.Conn, yield func(Event, error) bool) error {
	if o.ends {
		return errors.New("alerts and their ends have several subjects: Episodes cannot be combined with Live")
	}
	sub, err := o.subscribe(ctx, nc, o.subjects()[0])
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
		if !yield(Parse(msg.Subject, msg.Header, msg.Data)) {
			return errLeft
		}
	}
}

// subscribe subscribes, and returns when the server has the subscription.
func (o options) subscribe(ctx context.Context, nc *nats.Conn, subject string) (*nats.Subscription, error) {
	before := nc.LastError()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("no answer from NATS: %w", err)
	}
	if err := wire.SubscriptionDenied(nc, before, subject); err != nil {
		_ = sub.Unsubscribe()
		return nil, err
	}
	return sub, nil
}

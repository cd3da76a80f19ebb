package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/wire"
)

// The stream of events, and its subjects.
const (
	// Stream keeps the events. It must never cover a subject of requests: callers would get the
	// stream's acknowledgement as the answer.
	Stream        = "LEAF_EVENTS"
	Subjects      = wire.SubjectEvents + ".>"
	AlertSubjects = wire.SubjectEvents + ".alert.>" // an operator should look
)

// ErrNoJetStream says that nothing keeps the events. Without JetStream a subscription to
// [Subjects], and [Parse], give what is published meanwhile.
var ErrNoJetStream = errors.New("this NATS has no JetStream, so no events are kept: `leaf events --live` shows those " +
	"that come")

// Option selects which events [Follow] follows, and how.
type Option func(*options)

type options struct {
	subject string
	since   time.Time
	name    string
	durable bool
	timeout time.Duration
}

// AlertsOnly selects alerts: the events at which an operator should look.
func AlertsOnly() Option { return func(o *options) { o.subject = AlertSubjects } }

// Since begins with the events at t, if the stream still has them. Default, also for the zero time:
// from now on.
func Since(t time.Time) Option { return func(o *options) { o.since = t } }

// Durable makes the server store the position under this name. The next loop with the same name,
// also in another process, goes on there. The first use creates the durable consumer, which begins
// at [Since]. Loops with the same name share the events.
//
// An event is acknowledged when the loop asks for the next one. An event at which the loop is left
// comes again at once. An event whose process died, or that takes longer than 30 seconds, comes
// again after these 30 seconds. So an event comes at least once, with the same ID each time. An
// event that comes again may come after younger ones. All loops with one name work on at most 512
// events at a time.
//
// A durable consumer stays until it is deleted: `nats consumer rm LEAF_EVENTS NAME`, or
// DeleteConsumer of JetStream. That ends its loops with an error. An existing consumer with other
// settings is used as it is. It is an error if these would lose events, or select other events than
// the loop does.
func Durable(name string) Option {
	return func(o *options) { o.name, o.durable = name, true }
}

// Timeout bounds each request that is needed before the first event, and after an interruption.
// Default: 5 s.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// Follow yields the events that js keeps, from now on or as the options say, until the loop is left
// or the context is done, which is not an error. It reads the stream: in order, and each event
// once. It goes on after an interruption of the connection, and after the stream was lost or
// restored, with what is younger than the last event. There is no gap if the stream still has the
// events, and if the clocks of the NATS servers differ by less than a second. With [Durable] events
// come at least once.
//
// An error that matches [ErrNotAnEvent] is about one message, and the loop may go on. Any other
// error comes last: there is no stream yet, the connection was closed, or [ErrNoJetStream]. Only a
// durable consumer stays on the server afterwards.
func Follow(ctx context.Context, js jetstream.JetStream, opts ...Option) iter.Seq2[Event, error] {
	o := options{subject: Subjects, timeout: 5 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	return func(yield func(Event, error) bool) {
		err := (&follower{options: o, js: js, yield: yield}).run(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errLeft) {
			yield(Event{}, fmt.Errorf("following the events: %w", err))
		}
	}
}

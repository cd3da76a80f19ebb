package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// EventFilter says which events to follow.
type EventFilter struct {
	Alerts bool      // only those that want an operator
	Since  time.Time // from then on; zero: from now on
}

// FollowEvents calls f for each event of the stream, in order, until the
// context is done, which is no error, or f returns an error. Messages that are
// no events are passed to odd.
func FollowEvents(ctx context.Context, js jetstream.JetStream, filter EventFilter, f func(Event) error, odd func(error)) error {
	cfg := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{EventSubjects},
		DeliverPolicy:  jetstream.DeliverNewPolicy,
	}
	if filter.Alerts {
		cfg.FilterSubjects = []string{AlertSubjects}
	}
	if !filter.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &filter.Since
	}
	consumer, err := js.OrderedConsumer(ctx, EventStream, cfg)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("there is no stream %s on this NATS: a generator makes it when it starts: %w", EventStream, err)
	}
	if err != nil {
		return fmt.Errorf("following the events: %w", err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("following the events: %w", err)
	}
	defer messages.Stop()
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	for {
		msg, err := messages.Next()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return fmt.Errorf("following the events: %w", err)
		}
		if err != nil {
			odd(err) // it goes on by itself, say after a server's restart
			continue
		}
		event, err := ParseEvent(msg.Subject(), msg.Headers(), msg.Data())
		if err != nil {
			odd(err)
			continue
		}
		if err := f(event); err != nil {
			return err
		}
	}
}

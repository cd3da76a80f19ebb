package generator

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// headerSeen of a refill event of an older version is the end of all ranges of the tag that its
// publisher had seen.
const headerSeen = "Leaf-Seen"

// LastRefills calls f with the end of the range that the last refill event of each tag in the event stream
// reports. With a tag it reads only the event of that one. Events are a hint: they may be late or lost.
func LastRefills(ctx context.Context, js jetstream.JetStream, tag string, f func(tag string, end int64)) error {
	subject := wire.RefillSubject + tag
	if tag == "" {
		subject += ">"
	}
	consumer, err := js.OrderedConsumer(ctx, bus.EventStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject},
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy,
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // a new installation
	}
	if err != nil || consumer.CachedInfo().NumPending == 0 {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	defer messages.Stop()
	for {
		msg, err := messages.Next()
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		var body bus.RefillEvent
		if err := json.Unmarshal(msg.Data(), &body); err == nil && body.Last > 0 && msg.Subject() == wire.RefillSubject+body.Tag {
			seen, _ := wire.ParseID([]byte(msg.Headers().Get(headerSeen))) // 0: none
			f(body.Tag, max(seen, body.Last+1))
		}
		if about, err := msg.Metadata(); err != nil || about.NumPending == 0 {
			return err
		}
	}
}

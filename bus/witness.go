package bus

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A generator takes the refills of the others for marks: what they reserved is
// evidence of how far the store was. It hears of new ones by a plain
// subscription, and reads the last one of each tag from the stream when it
// starts and whenever its connection comes back.

// witnessed takes in the message of a refill.
func (g *Generator) witnessed(msg *nats.Msg) { g.witness(msg.Subject, msg.Data) }

func (g *Generator) witness(subject string, data []byte) {
	var body refillBody
	if err := json.Unmarshal(data, &body); err != nil || body.Last < 1 || subject != refillSubject+body.Tag {
		g.log.Warn("a refill event that cannot be one", "subject", subject)
		return
	}
	g.alloc.Observe(body.Tag, body.Last+1)
}

// readHistory takes in the last refill of every tag that the stream has.
func (g *Generator) readHistory(ctx context.Context) error {
	consumer, err := g.cfg.JS.OrderedConsumer(ctx, EventStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{refillSubject + ">"},
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy,
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // a new installation
	}
	if err != nil {
		return err
	}
	if consumer.CachedInfo().NumPending == 0 {
		return nil
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
		g.witness(msg.Subject(), msg.Data())
		if about, err := msg.Metadata(); err != nil || about.NumPending == 0 {
			return err
		}
	}
}

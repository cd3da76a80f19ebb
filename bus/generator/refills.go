package generator

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// headerSeen of a refill event of an older version is the end of all ranges of the tag that its
// publisher had seen.
const headerSeen = "Leaf-Seen"

// refillsStall is how long LastRefills waits for the next event. Those that were still to come may have been
// removed meanwhile, with the whole stream even: then none comes.
const refillsStall = 5 * time.Second

// LastRefills calls f with the end of the range that the last refill event of each tag in the event stream
// reports. With a tag it reads only the event of that one. Events are a hint: they may be late or lost.
func LastRefills(ctx context.Context, js jetstream.JetStream, tag string, f func(tag string, end int64)) error {
	if tag != "" {
		return lastRefill(ctx, js, tag, f)
	}
	consumer, err := js.OrderedConsumer(ctx, bus.EventStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{wire.RefillSubject + ">"},
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
	// Not NextMaxWait: a consumer that is made again, and cannot be, waits for longer.
	stall := time.AfterFunc(refillsStall, messages.Stop)
	defer stall.Stop()
	for {
		msg, err := messages.Next()
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		stall.Reset(refillsStall)
		noteRefill(msg.Subject(), msg.Headers(), msg.Data(), f)
		if about, err := msg.Metadata(); err != nil || about.NumPending == 0 {
			return err
		}
	}
}

// lastRefill is LastRefills for one tag. It leaves no consumer behind: an operator may ask for thousands of tags.
func lastRefill(ctx context.Context, js jetstream.JetStream, tag string, f func(tag string, end int64)) error {
	stream, err := js.Stream(ctx, bus.EventStream)
	var msg *jetstream.RawStreamMsg
	if err == nil {
		msg, err = stream.GetLastMsgForSubject(ctx, wire.RefillSubject+tag)
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrMsgNotFound):
		return nil
	case err != nil:
		return err
	}
	noteRefill(msg.Subject, msg.Header, msg.Data, f)
	return nil
}

// noteRefill calls f with what a refill event reports. It skips what is none.
func noteRefill(subject string, header nats.Header, data []byte, f func(tag string, end int64)) {
	var body bus.RefillEvent
	if err := json.Unmarshal(data, &body); err != nil || body.Last <= 0 || subject != wire.RefillSubject+body.Tag {
		return
	}
	seen, _ := wire.ParseID([]byte(header.Get(headerSeen))) // 0: none
	f(body.Tag, max(seen, body.Last+1))
}

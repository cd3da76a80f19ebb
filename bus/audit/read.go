package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// readStall is how long Read waits for the stream, and then for the next event, unless a [Source] says otherwise.
	// Those that were still to come may have been removed meanwhile, with the whole stream even: then none comes.
	readStall = 5 * time.Second
	// readAhead is how many events are under way.
	readAhead = 4096
	// idleConsumer is how long the server keeps the consumer of a reader that was killed.
	idleConsumer = 30 * time.Second
)

// The subjects of the events that an audit reads.
const (
	allEvents    = wire.SubjectEvents + ".>"
	tagEvents    = wire.SubjectEvents + ".*.*.*." // then the tag
	refillEvents = wire.RefillSubject             // then the tag
	workerEvents = wire.SubjectEvents + ".*.worker.*."
)

var errStalled = fmt.Errorf("no event came for %v: NATS is unavailable, or events were removed while they were read; try again", readStall)

// Read calls f with each message of the event stream on a subject, oldest first, from among those that the stream has
// when Read begins. With [jetstream.DeliverLastPerSubjectPolicy] it reads only the last one on each subject. f
// gets the number of messages that are still to come. No stream: no messages.
func Read(
	ctx context.Context, js jetstream.JetStream, subject string, policy jetstream.DeliverPolicy, f func(msg jetstream.Msg, left uint64),
) error {
	return Source{JS: js}.readAll(ctx, subject, policy, f)
}

// readAll is Read with the waits of a source.
func (s Source) readAll(
	ctx context.Context, subject string, policy jetstream.DeliverPolicy, f func(msg jetstream.Msg, left uint64),
) error {
	patience := cmp.Or(s.stall, readStall)
	open, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := eventStream(open, s.JS)
	if err != nil || stream == nil {
		return unanswered(ctx, err)
	}
	// Before the last message, and even if there is none. Only a majority of the servers makes a consumer, but a server
	// that is cut off may take itself for the leader for 20 s. Then what it has is no evidence that anything is
	// unclaimed.
	consumer, err := stream.OrderedConsumer(open, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: policy, InactiveThreshold: idleConsumer,
	})
	if err != nil {
		return unanswered(ctx, fmt.Errorf("reading stream %s: %w", events.Stream, err))
	}
	defer func() { // else the server keeps it until idleConsumer is over
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = stream.DeleteConsumer(ctx, consumer.CachedInfo().Name)
	}()
	last, err := lastOn(open, stream, subject)
	if err != nil || last == nil {
		return unanswered(ctx, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(readAhead))
	if err != nil {
		return fmt.Errorf("reading stream %s: %w", events.Stream, err)
	}
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	defer messages.Stop()
	// Not NextMaxWait: a consumer that is made again, and cannot be, waits for longer. The time that f takes does not
	// count.
	var stalled atomic.Bool
	stall := time.AfterFunc(patience, func() { stalled.Store(true); messages.Stop() })
	defer stall.Stop()
	for {
		msg, err := messages.Next()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("reading stream %s: %w", events.Stream, context.Cause(ctx))
		case err != nil && stalled.Load():
			return fmt.Errorf("reading stream %s: %w", events.Stream, errStalled)
		case err != nil:
			return fmt.Errorf("reading stream %s: %w", events.Stream, err)
		}
		stall.Stop()
		about, err := msg.Metadata()
		if err != nil {
			return err
		}
		newest := policy == jetstream.DeliverLastPerSubjectPolicy // the last message on a subject may be later by now
		if about.Sequence.Stream <= last.Sequence || newest {
			f(msg, about.NumPending)
		}
		// The consumer may be at a replica that lags behind, and then NumPending alone is no end.
		if about.Sequence.Stream >= last.Sequence && (!newest || about.NumPending == 0) {
			return nil
		}
		stall.Reset(patience)
	}
}

// unanswered says what to do about an error of JetStream that did not answer within readStall.
func unanswered(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%w: JetStream did not answer within %v, perhaps it has no leader now; try again", err, readStall)
	}
	return err
}

// Last returns the last message of the event stream on a subject, which may have wildcards; nil: there is none. The
// leader of the stream answers, because other replicas may lag behind.
func Last(ctx context.Context, js jetstream.JetStream, subject string) (*jetstream.RawStreamMsg, error) {
	stream, err := eventStream(ctx, js)
	if err != nil || stream == nil {
		return nil, err
	}
	return lastOn(ctx, stream, subject)
}

// eventStream returns the event stream, for reads that only its leader answers; nil: there is none, in a new
// installation.
func eventStream(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, events.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("stream %s: %w", events.Stream, err)
	}
	stream.CachedInfo().Config.AllowDirect = false // for this handle
	return stream, nil
}

// lastOn returns the last message of the stream on a subject; nil: there is none.
func lastOn(ctx context.Context, stream jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	last, err := stream.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("stream %s: %w", events.Stream, err)
	}
	return last, nil
}

// Package stream reads streams of JetStream as their leaders have them: what a replica that lags
// behind does not have yet is waited for.
package stream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// readStall is how long Read waits for the stream, and then for the next message. Those that
	// were still to come may have been removed meanwhile, with the whole stream even: then none
	// comes.
	readStall = 5 * time.Second
	// readAhead is how many messages are under way.
	readAhead = 4096
	// idleConsumer is how long the server keeps the consumer of a reader that was killed.
	idleConsumer = 30 * time.Second
)

var errStalled = fmt.Errorf("no message came for %v: NATS is unavailable, or messages were removed while they were "+
	"read; try again", readStall)

// Read calls f with each message of a stream on a subject, oldest first, from among those that the
// stream has when Read begins. With [jetstream.DeliverLastPerSubjectPolicy] it reads only the last
// one on each subject, which may be later. f gets the sequence of the message, and how many
// messages are still to come. No stream: no messages.
func Read(
	ctx context.Context, js jetstream.JetStream, name, subject string, policy jetstream.DeliverPolicy,
	f func(msg jetstream.Msg, sequence, left uint64),
) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("reading stream %s: %w", name, err)
		}
	}()
	open, cancel := context.WithTimeout(ctx, readStall)
	defer cancel()
	stream, err := leaderOf(open, js, name)
	if err != nil || stream == nil {
		return unanswered(ctx, err)
	}
	// Before the last message, and even if there is none. Only a majority of the servers makes a
	// consumer, but a server that is cut off may take itself for the leader for 20 s. Then what it
	// has is no evidence that anything is unclaimed.
	consumer, err := stream.OrderedConsumer(open, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: policy, InactiveThreshold: idleConsumer,
	})
	if err != nil {
		return unanswered(ctx, err)
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
		return err
	}
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	defer messages.Stop()
	// Not NextMaxWait: a consumer that is made again, and cannot be, waits for longer. The time
	// that f takes does not count.
	var stalled atomic.Bool
	stall := time.AfterFunc(readStall, func() { stalled.Store(true); messages.Stop() })
	defer stall.Stop()
	for {
		msg, err := messages.Next()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && stalled.Load():
			return errStalled
		case err != nil:
			return err
		}
		stall.Stop()
		about, err := msg.Metadata()
		if err != nil {
			return err
		}
		newest := policy == jetstream.DeliverLastPerSubjectPolicy
		if about.Sequence.Stream <= last.Sequence || newest {
			f(msg, about.Sequence.Stream, about.NumPending)
		}
		// The consumer may be at a replica that lags behind, and then NumPending alone is no end.
		if about.Sequence.Stream >= last.Sequence && (!newest || about.NumPending == 0) {
			return nil
		}
		stall.Reset(readStall)
	}
}

// unanswered says what to do about an error of JetStream that did not answer within readStall.
func unanswered(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%w: JetStream did not answer within %v, perhaps it has no leader now; try again", err, readStall)
	}
	return err
}

// Last returns the last message of a stream on a subject, which may have wildcards; nil: there is
// none. The leader of the stream answers.
func Last(ctx context.Context, js jetstream.JetStream, name, subject string) (*jetstream.RawStreamMsg, error) {
	stream, err := leaderOf(ctx, js, name)
	if err != nil || stream == nil {
		return nil, err
	}
	return lastOn(ctx, stream, subject)
}

// leaderOf returns a stream, for reads that only its leader answers; nil: there is none.
func leaderOf(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	stream.CachedInfo().Config.AllowDirect = false // for this handle
	return stream, nil
}

// lastOn returns the last message of the stream on a subject; nil: there is none.
func lastOn(ctx context.Context, stream jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	last, err := stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return last, err
}

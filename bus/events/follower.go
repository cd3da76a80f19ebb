package events

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// ackWait is the time after which an event without acknowledgement comes again.
	ackWait = 30 * time.Second
	// maxAckPending bounds the events that all loops of a durable consumer work on at a time. Each loop has one.
	maxAckPending = 512
	// prefetch is how many events a consumer sends ahead if it is not durable.
	prefetch = 256
	// pullWait is how long the server may take to say that there are no events.
	// After that the consumer counts as lost. jetstream keeps a timer for longer if this is 10 s or more.
	pullWait = 9 * time.Second
	// idleConsumer is how long the server keeps a consumer that could not be deleted.
	idleConsumer  = 5 * time.Minute
	removeTimeout = 2 * time.Second

	firstFollowPause = 100 * time.Millisecond
	lastFollowPause  = 5 * time.Second
)

var (
	errGap         = errors.New("messages were lost on their way")
	errReconnected = errors.New("the connection was interrupted")
	// errUnfit is about a durable consumer that cannot be used.
	errUnfit = errors.New("the durable consumer cannot be used")
)

// follower is a loop that reads the stream. Without a durable consumer it keeps its own position:
// its consumer stores none, and the follower makes another consumer after whatever may have lost a message.
//
// jetstream.OrderedConsumer does so too. But where the stream's numbers begin again it goes on at its
// old number, and waits for events that it never gets: TestFollowStreamMadeAgain and
// TestFollowRestoredStream fail with it. It also leaves its last consumer on the server.
type follower struct {
	options
	yield func(Event, error) bool

	opened  bool      // it had a consumer once
	created time.Time // when the stream was
	last    uint64    // number in the stream of the last message that came
	came    uint64    // messages of the present consumer
}

// run follows until the loop is left, the context is done, or an error that no retry can fix.
func (f *follower) run(ctx context.Context) error {
	for pause := firstFollowPause; ; pause = min(2*pause, lastFollowPause) {
		began, err := f.session(ctx)
		switch {
		case errors.Is(err, errLeft), ctx.Err() != nil:
			return err
		case f.js.Conn().IsClosed():
			return nats.ErrConnectionClosed
		case !f.opened, errors.Is(err, errUnfit), errors.Is(err, nats.ErrPermissionViolation):
			return err
		}
		if began {
			pause = firstFollowPause
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// session follows with one consumer, until the connection is interrupted or something fails. It
// returns whether it had a consumer.
func (f *follower) session(ctx context.Context) (began bool, err error) {
	nc := f.js.Conn()
	changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED) // from before there is a consumer
	defer nc.RemoveStatusListener(changed)
	if !f.durable {
		f.name = rand.Text()
		defer func() {
			// A consumer may also exist if its creation was cancelled.
			if began || ctx.Err() != nil {
				f.remove()
			}
		}()
	}
	watched, stop := wire.WatchDenials(ctx, nc, f.asks)
	defer stop()
	consumer, err := f.open(watched)
	if began = err == nil; began {
		f.opened, f.came = true, 0
	}
	for err == nil {
		err = f.pull(watched, consumer, changed)
	}
	if cause := context.Cause(watched); errors.Is(cause, nats.ErrPermissionViolation) {
		err = cause
	}
	return began, err
}

// asks reports whether a subject is one on which the follower asks for the stream, its consumer or
// messages, or acknowledges them. A domain of JetStream stands between $JS and API.
func (f *follower) asks(subject string) bool {
	return strings.HasPrefix(subject, "$JS.") && (strings.HasSuffix(subject, ".API.STREAM.INFO."+Stream) ||
		strings.Contains(subject+".", "."+Stream+"."+f.name+"."))
}

// open returns the consumer, and makes it if it may.
func (f *follower) open(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	consumer, err := f.find(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrTimeout) {
		err = fmt.Errorf("no answer from JetStream in time: %w", err)
	}
	return consumer, err
}

// find is open, until the context ends.
func (f *follower) find(ctx context.Context) (jetstream.Consumer, error) {
	stream, err := f.js.Stream(ctx, Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("there is no stream %s on this NATS: a generator creates it when it starts: %w", Stream, err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return nil, fmt.Errorf("%w: %w", ErrNoJetStream, err)
	case err != nil:
		return nil, fmt.Errorf("stream %s: %w", Stream, err)
	}
	cfg := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}
	if subjects := f.subjects(); len(subjects) == 1 {
		cfg.FilterSubject = subjects[0] // which permissions may name
	} else {
		cfg.FilterSubjects = subjects
	}
	if !f.since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &f.since
	}
	if f.durable {
		return f.openDurable(ctx, stream, cfg)
	}
	return f.openOwn(ctx, stream, cfg)
}

func (f *follower) openOwn(
	ctx context.Context, stream jetstream.Stream, cfg jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	about := stream.CachedInfo()
	if f.opened {
		if !about.Created.Equal(f.created) {
			f.last = 0 // it was deleted and created again: all its events are new
		}
		// A stream that lost its end, or was restored, uses numbers again.
		f.last = min(f.last, about.State.LastSeq)
		cfg.DeliverPolicy, cfg.OptStartTime, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, nil, f.last+1
	}
	cfg.Name, cfg.AckPolicy, cfg.InactiveThreshold = f.name, jetstream.AckNonePolicy, idleConsumer
	cfg.MemoryStorage, cfg.Replicas = true, 1
	consumer, err := stream.CreateConsumer(ctx, cfg)
	if err != nil {
		return nil, err
	}
	f.created = about.Created
	if !f.opened {
		f.last = consumer.CachedInfo().Delivered.Stream // where it begins
	}
	return consumer, nil
}

func (f *follower) openDurable(
	ctx context.Context, stream jetstream.Stream, cfg jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	consumer, err := stream.Consumer(ctx, f.name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if f.opened {
			return nil, f.gone()
		}
		cfg.Durable, cfg.AckPolicy = f.name, jetstream.AckExplicitPolicy
		cfg.AckWait, cfg.MaxAckPending = ackWait, maxAckPending
		consumer, err = stream.CreateConsumer(ctx, cfg)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another loop was first, and began at another time
			consumer, err = stream.Consumer(ctx, f.name)
		}
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, f.unfit("it sends events to a fixed subject")
	}
	if err != nil {
		return nil, fmt.Errorf("durable consumer %q: %w", f.name, err)
	}
	about := consumer.CachedInfo().Config
	filter := about.FilterSubjects
	if about.FilterSubject != "" {
		filter = append(filter, about.FilterSubject)
	}
	if len(filter) == 0 {
		filter = []string{Subjects} // all events of the stream
	}
	switch {
	case !slices.Equal(slices.Sorted(slices.Values(filter)), f.subjects()):
		return nil, f.unfit(fmt.Sprintf("it selects %q, this loop %q", filter, f.subjects()))
	case about.AckPolicy != jetstream.AckExplicitPolicy:
		return nil, f.unfit("it does not wait for acknowledgements, and would lose events")
	case about.Durable == "":
		return nil, f.unfit("it is not durable")
	}
	return consumer, nil
}

func (f *follower) unfit(why string) error {
	return fmt.Errorf("%w: there is a consumer %q already, and %s: use another name, "+
		"or delete the consumer with `nats consumer rm %s %s` if it is not needed", errUnfit, f.name, why, Stream, f.name)
}

func (f *follower) gone() error {
	return fmt.Errorf("%w: %q was deleted, alone or with the stream: the next loop with this name begins again",
		errUnfit, f.name)
}

// remove deletes the consumer. If the server cannot be reached, it deletes the consumer after idleConsumer.
func (f *follower) remove() {
	if !f.js.Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	_ = f.js.DeleteConsumer(ctx, Stream, f.name)
}

// pull asks for messages once, and passes on those that come.
func (f *follower) pull(ctx context.Context, consumer jetstream.Consumer, changed <-chan nats.Status) error {
	n := prefetch
	if f.durable {
		n = 1 // else events would wait here that others could work on
	}
	pulling, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	// Messages would be no better: with one message at a time it sometimes forgets to ask.
	batch, err := consumer.Fetch(n, jetstream.FetchContext(pulling))
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		for msg := range batch.Messages() {
			f.giveBack(msg)
		}
	}()
	for {
		select {
		case <-changed:
			return errReconnected
		case msg, ok := <-batch.Messages():
			if !ok {
				return batch.Error()
			}
			if err := ctx.Err(); err != nil {
				f.giveBack(msg)
				return err
			}
			if err := f.pass(msg); err != nil {
				return err
			}
		}
	}
}

// giveBack lets another follower of the same durable consumer have a message.
func (f *follower) giveBack(msg jetstream.Msg) {
	if f.durable {
		_ = msg.Nak()
	}
}

// pass gives a message to the loop. An acknowledgement that is lost lets the event come again.
func (f *follower) pass(msg jetstream.Msg) error {
	if !f.durable {
		about, err := msg.Metadata()
		if err != nil {
			return err
		}
		if f.came++; about.Sequence.Consumer != f.came {
			return errGap
		}
		f.last = about.Sequence.Stream
	}
	event, bad := Parse(msg.Subject(), msg.Headers(), msg.Data())
	if f.durable && bad != nil {
		_ = msg.Term() // before the loop sees it: else a loop that ends there would get it for ever
	}
	if !f.yield(event, bad) {
		if bad == nil {
			f.giveBack(msg)
		}
		return errLeft
	}
	if f.durable && bad == nil {
		_ = msg.Ack()
	}
	return nil
}

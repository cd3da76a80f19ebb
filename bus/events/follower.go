package events

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// ackWait is the time after which an event without acknowledgement comes again.
	ackWait = 30 * time.Second
	// maxAckPending bounds the events that all loops of a durable consumer work on at a time. Each
	// loop has one.
	maxAckPending = 512
	// prefetch is how many events a consumer sends ahead if it is not durable.
	prefetch = 256
	// pullWait is how long the server may take to say that there are no events. After that the
	// consumer counts as lost. jetstream keeps a timer for longer if this is 10 s or more.
	pullWait = 9 * time.Second
	// idleConsumer is how long the server keeps a consumer that could not be deleted.
	idleConsumer  = 5 * time.Minute
	removeTimeout = 2 * time.Second
	// overlap is how far the clocks of NATS servers may differ. Each of them gives messages their
	// times.
	overlap = time.Second
	// pause is between two consumers.
	pause = 500 * time.Millisecond
)

var (
	errLeft        = errors.New("the loop was left")
	errGap         = errors.New("messages were lost on their way")
	errReconnected = errors.New("the connection was interrupted")
	// errUnfit is about a durable consumer that cannot be used.
	errUnfit = errors.New("the durable consumer cannot be used")
)

// follower is a loop that reads the stream. Without [Durable] it makes another consumer after
// whatever may have lost a message. That begins at the time of the last message, because a stream
// that was made again or restored uses numbers again. jetstream.OrderedConsumer goes on at its old
// number there, and waits for events that it never gets. It makes its consumers inside Next, where
// the loop can neither prevent nor cancel that, and leaves the last one on the server.
//
//	run        one session after the other, with pauses
//	  session  open, and pull until something fails
//	    pull   pass each message to the loop
type follower struct {
	options
	js    jetstream.JetStream
	yield func(Event, error) bool

	opened bool      // it had a consumer once
	came   uint64    // messages of the present consumer
	newest int64     // time of a message that came
	recent []message // those that came and are at most the overlap older: the next consumer sends them again
}

// message is a message of the stream, however often that was made again.
type message struct {
	at     int64 // Unix time in ns, by the clock of a NATS server
	number uint64
}

// run follows until the loop is left, the context is done, or an error that no retry can fix.
func (f *follower) run(ctx context.Context) error {
	for {
		err := f.session(ctx)
		switch {
		case errors.Is(err, errLeft), ctx.Err() != nil:
			return err
		case f.js.Conn().IsClosed():
			return nats.ErrConnectionClosed
		case !f.opened, errors.Is(err, errUnfit), errors.Is(err, nats.ErrPermissionViolation):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// session follows with one consumer, until the connection is interrupted or something fails.
func (f *follower) session(ctx context.Context) error {
	nc := f.js.Conn()
	changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED) // from before there is a consumer
	defer nc.RemoveStatusListener(changed)
	if !f.durable {
		f.name = rand.Text()
	}
	before := nc.LastError()
	consumer, err := f.open(ctx)
	if err == nil {
		f.opened, f.came = true, 0
		if !f.durable {
			defer f.remove()
		}
	}
	for err == nil {
		err = f.pull(ctx, consumer, changed)
	}
	// The name of the consumer is in each subject on which it asks.
	return cmp.Or(wire.Denied(nc, before, func(subject string) bool {
		return strings.HasPrefix(subject, "$JS.") && strings.Contains(subject+".", "."+f.name+".")
	}), err)
}

// open returns the consumer, and makes it if it may.
func (f *follower) open(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	from := f.since
	if last := time.Unix(0, f.newest).Add(-overlap); f.newest > 0 && last.After(from) {
		from = last
	}
	cfg := jetstream.ConsumerConfig{FilterSubject: f.subject, DeliverPolicy: jetstream.DeliverNewPolicy}
	if !from.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	open := f.openOwn
	if f.durable {
		open = f.openDurable
	}
	consumer, err := open(ctx, cfg)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("there is no stream %s on this NATS: a generator creates it when it starts: %w", Stream, err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return nil, fmt.Errorf("%w: %w", ErrNoJetStream, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrTimeout):
		return nil, fmt.Errorf("no answer from JetStream in time: %w", err)
	}
	return consumer, err
}

func (f *follower) openOwn(ctx context.Context, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	cfg.Name, cfg.AckPolicy, cfg.InactiveThreshold = f.name, jetstream.AckNonePolicy, idleConsumer
	cfg.MemoryStorage, cfg.Replicas = true, 1
	consumer, err := f.js.CreateConsumer(ctx, Stream, cfg)
	if err == nil && f.since.IsZero() {
		f.since = consumer.CachedInfo().Created // the next consumer has what came since
	}
	return consumer, err
}

func (f *follower) openDurable(ctx context.Context, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	consumer, err := f.js.Consumer(ctx, Stream, f.name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && !f.opened {
		cfg.Durable, cfg.AckPolicy = f.name, jetstream.AckExplicitPolicy
		cfg.AckWait, cfg.MaxAckPending = ackWait, maxAckPending
		consumer, err = f.js.CreateConsumer(ctx, Stream, cfg)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another loop was first, and began at another time
			consumer, err = f.js.Consumer(ctx, Stream, f.name)
		}
	}
	why := ""
	switch {
	case f.opened && (errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)):
		return nil, fmt.Errorf("%w: %q was deleted, alone or with the stream: the next loop with this name begins again",
			errUnfit, f.name)
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		why = "sends events to a fixed subject"
	case err != nil:
		return nil, fmt.Errorf("durable consumer %q: %w", f.name, err)
	default:
		why = unfit(consumer.CachedInfo().Config, f.subject)
	}
	if why == "" {
		return consumer, nil
	}
	return nil, fmt.Errorf("%w: there is a consumer %q already, and it %s: use another name, or delete the consumer with "+
		"`nats consumer rm %s %s` if it is not needed", errUnfit, f.name, why, Stream, f.name)
}

// unfit says why a consumer that was there cannot be used as a durable one; empty: it can.
func unfit(c jetstream.ConsumerConfig, subject string) string {
	filter := c.FilterSubjects
	if c.FilterSubject != "" {
		filter = append(filter, c.FilterSubject)
	}
	if len(filter) == 0 {
		filter = []string{Subjects} // all events of the stream
	}
	switch {
	case !slices.Equal(filter, []string{subject}):
		return fmt.Sprintf("selects %q, this loop %q", filter, subject)
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		return "does not wait for acknowledgements, and would lose events"
	case c.Durable == "":
		return "is not durable"
	}
	return ""
}

// remove deletes the consumer. If the server cannot be reached, it deletes the consumer after
// idleConsumer.
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
		if !f.note(message{about.Timestamp.UnixNano(), about.Sequence.Stream}) {
			return nil
		}
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

// note reports whether a message is new, and forgets those that do not come again.
func (f *follower) note(m message) bool {
	if m.at <= f.newest && slices.Contains(f.recent, m) {
		return false
	}
	f.newest = max(f.newest, m.at)
	f.recent = append(f.recent, m)
	for f.recent[0].at < f.newest-int64(overlap) {
		f.recent = f.recent[1:]
	}
	return true
}

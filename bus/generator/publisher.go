package generator

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// eventQueue is how many events wait while the stream is away. The last
	// quarter is for alerts.
	eventQueue = 16384
	infoQueue  = eventQueue / 4 * 3

	publishTimeout    = 5 * time.Second
	firstPublishPause = 100 * time.Millisecond
	lastPublishPause  = 5 * time.Second
	// flushTimeout bounds how long a shutdown waits for the stream.
	flushTimeout = 2 * time.Second
)

// publisher brings events to the stream, one after the other, and never delays
// whoever has one: they wait in a queue, and are dropped when that is full.
type publisher struct {
	js   jetstream.JetStream
	open func(context.Context) error // makes sure that the stream is there
	// stamp is called just before a message is published.
	stamp func(context.Context, *nats.Msg) error
	log   *slog.Logger

	queue   chan *nats.Msg
	dropped atomic.Int64
}

func newPublisher(js jetstream.JetStream, open func(context.Context) error, stamp func(context.Context, *nats.Msg) error, log *slog.Logger) *publisher {
	return &publisher{js: js, open: open, stamp: stamp, log: log, queue: make(chan *nats.Msg, eventQueue)}
}

// publish queues an event. It never blocks.
func (p *publisher) publish(msg *nats.Msg) {
	isAlert := strings.HasPrefix(msg.Subject, wire.SubjectEvents+"."+wire.Alert+".")
	if isAlert || len(p.queue) < infoQueue {
		select {
		case p.queue <- msg:
			return
		default:
		}
	}
	p.dropped.Add(1)
}

// run publishes until the context is done, and then for up to flushTimeout
// what is still in the queue.
func (p *publisher) run(ctx context.Context) {
	opened := false
	for {
		select {
		case msg := <-p.queue:
			opened = p.deliver(ctx, msg, opened)
		case <-ctx.Done():
			p.flush(opened)
			return
		}
	}
}

// deliver publishes msg, again and again until the stream has it or the context
// is done. It returns whether the stream is known to be there.
func (p *publisher) deliver(ctx context.Context, msg *nats.Msg, opened bool) bool {
	var told string // an episode is logged once
	for wait := firstPublishPause; ; wait = min(2*wait, lastPublishPause) {
		err := p.attempt(ctx, msg, opened)
		if err == nil {
			if told != "" {
				p.log.Info("events are published again")
			}
			return true
		}
		if hopeless(err) {
			p.dropped.Add(1)
			p.log.Error("an event is dropped: the stream will never take it", "subject", msg.Subject, "error", err)
			return true
		}
		opened = false
		if ctx.Err() != nil {
			p.requeue(msg)
			return false
		}
		if told != err.Error() {
			told = err.Error()
			p.log.Warn("events cannot be published; they wait", "error", err, "waiting", len(p.queue)+1, "dropped", p.dropped.Load())
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// codeTooLarge is the server's JSStreamMessageExceedsMaximumErr.
const codeTooLarge jetstream.ErrorCode = 10054

// hopeless reports whether an event will never be taken: it must not hold up
// those behind it.
func hopeless(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return errors.Is(err, nats.ErrMaxPayload) || ok && api.ErrorCode == codeTooLarge
}

func (p *publisher) attempt(ctx context.Context, msg *nats.Msg, opened bool) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if !opened {
		if err := p.open(ctx); err != nil {
			return err
		}
	}
	if err := p.stamp(ctx, msg); err != nil {
		return err
	}
	_, err := p.js.PublishMsg(ctx, msg)
	return err
}

// requeue puts back a message that a shutdown interrupted; flush takes it.
func (p *publisher) requeue(msg *nats.Msg) {
	select {
	case p.queue <- msg:
	default:
		p.dropped.Add(1)
	}
}

// flush publishes what is in the queue, once each, and gives up at the first
// failure: the process is about to end. First comes one of each subject, as
// there may be more than time: a refill is stamped with all that was seen of its
// tag, so any one of them is the evidence that others need.
func (p *publisher) flush(opened bool) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	var first, more []*nats.Msg
	subjects := make(map[string]bool)
	for len(p.queue) > 0 { // nobody else takes from it
		msg := <-p.queue
		if subjects[msg.Subject] {
			more = append(more, msg)
			continue
		}
		subjects[msg.Subject] = true
		first = append(first, msg)
	}
	all := append(first, more...)
	for i, msg := range all {
		err := p.attempt(ctx, msg, opened)
		opened = true
		if err != nil && !hopeless(err) {
			p.log.Warn("events are lost: the stream is away, or too slow for the time that a stop has", "error", err, "lost", len(all)-i)
			return
		}
	}
}

package generator

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// eventQueue is how many events wait while the stream is unavailable. The last
	// quarter is for alerts.
	eventQueue = 16384
	infoQueue  = eventQueue / 4 * 3

	publishTimeout    = 5 * time.Second
	firstPublishPause = 100 * time.Millisecond
	lastPublishPause  = 5 * time.Second
	// flushTimeout bounds how long a shutdown waits for the stream.
	flushTimeout = 2 * time.Second

	// codeTooLarge is the server's JSStreamMessageExceedsMaximumErr.
	codeTooLarge jetstream.ErrorCode = 10054
)

// publisher publishes events on the stream, one after the other. Events wait in a queue, so they
// delay nothing else. A full queue drops new events.
type publisher struct {
	js   jetstream.JetStream
	open func(context.Context) error // makes sure that the stream exists
	log  *slog.Logger

	queue   chan *nats.Msg
	dropped atomic.Int64
	opened  bool // the stream exists, as far as is known; owned by run
}

func newPublisher(js jetstream.JetStream, open func(context.Context) error, log *slog.Logger) *publisher {
	return &publisher{js: js, open: open, log: log, queue: make(chan *nats.Msg, eventQueue)}
}

// publish queues an event. It never blocks.
func (p *publisher) publish(msg *nats.Msg) {
	isAlert := strings.HasPrefix(msg.Subject, wire.SubjectEvents+"."+wire.Alert+".")
	if !isAlert && len(p.queue) >= infoQueue {
		p.dropped.Add(1)
		return
	}
	select {
	case p.queue <- msg:
	default:
		p.dropped.Add(1)
	}
}

// run publishes until the context is done. Then it publishes what is still in the queue, for up to
// flushTimeout.
func (p *publisher) run(ctx context.Context) {
	for {
		select {
		case msg := <-p.queue:
			if !p.deliver(ctx, msg) {
				p.flush(msg)
				return
			}
		case <-ctx.Done():
			p.flush(nil)
			return
		}
	}
}

// deliver publishes msg. It retries until the stream has the message, or will never accept it. It
// reports false if the context is done before that.
func (p *publisher) deliver(ctx context.Context, msg *nats.Msg) bool {
	logged := "" // an error is logged once
	for wait := firstPublishPause; ; wait = min(2*wait, lastPublishPause) {
		err := p.attempt(ctx, msg)
		switch {
		case err == nil:
			if logged != "" {
				p.log.Info("events are published again")
			}
			return true
		case hopeless(err):
			p.dropped.Add(1)
			p.log.Error("an event is dropped, because the stream will never accept it", "subject", msg.Subject, "error", err)
			return true
		case ctx.Err() != nil:
			return false
		}
		if logged != err.Error() {
			logged = err.Error()
			p.log.Warn("events cannot be published; they wait",
				"error", err, "waiting", len(p.queue)+1, "dropped", p.dropped.Load())
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// hopeless reports whether the stream will never accept an event. Such an event must not delay
// the next ones.
func hopeless(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return errors.Is(err, nats.ErrMaxPayload) || ok && api.ErrorCode == codeTooLarge
}

// attempt publishes msg once.
func (p *publisher) attempt(ctx context.Context, msg *nats.Msg) (err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	defer func() { p.opened = err == nil || hopeless(err) }()
	if !p.opened {
		if err := p.open(ctx); err != nil {
			return err
		}
	}
	_, err = p.js.PublishMsg(ctx, msg)
	return err
}

// flush publishes what is in the queue, once each, and before that the message whose publication the stop
// ended, if there is one. It stops at the first failure, because the process is about to end. It keeps the
// order: the last refill event of a tag in the stream shows how far the tag was reserved.
func (p *publisher) flush(msg *nats.Msg) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	for ; msg != nil || len(p.queue) > 0; msg = nil {
		if msg == nil {
			msg = <-p.queue // nothing else receives from it
		}
		if err := p.attempt(ctx, msg); err != nil && !hopeless(err) {
			p.log.Warn("events are lost: the stream is unavailable, or too slow for the time that a stop has",
				"error", err, "lost", len(p.queue)+1)
			return
		}
	}
}

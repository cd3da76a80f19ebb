// Package outbox publishes the events of a generator on the stream.
package outbox

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// eventQueue is how many events wait while the stream is unavailable. The last quarter is for
	// alerts.
	eventQueue = 16384
	infoQueue  = eventQueue / 4 * 3
	// pacedQueue is how many events may wait before a producer that need not hurry waits.
	pacedQueue = infoQueue / 2
	paceEvery  = 10 * time.Millisecond
	// publishBatch is how many events are under way at most.
	publishBatch = 256

	publishTimeout    = 5 * time.Second
	firstPublishPause = 100 * time.Millisecond
	lastPublishPause  = 5 * time.Second
	// flushTimeout bounds how long a shutdown waits for the stream.
	flushTimeout = 2 * time.Second

	// codeTooLarge is the server's JSStreamMessageExceedsMaximumErr.
	codeTooLarge jetstream.ErrorCode = 10054
)

// Outbox publishes events on the stream, in batches. Events wait in a queue, so they delay nothing
// else. A full queue drops new events. A batch has at most one event of a key, and no batch begins
// before the last one is in the stream. So the events of a key keep their order: the last refill
// event of a tag shows how far the tag was reserved.
//
//	Publish, Pace      of any goroutine
//	Run ── batch, deliver ── attempt
//	└── flush ── batch, deliver        at the end
type Outbox struct {
	js   jetstream.JetStream
	open func(context.Context) error // makes sure that the stream exists
	log  *slog.Logger

	// Of any goroutine.
	queue   chan *nats.Msg
	dropped atomic.Int64
	failing atomic.Pointer[error] // why the last attempt failed; nil: it did not

	// Owned by Run.
	opened bool      // the stream exists, as far as is known
	first  *nats.Msg // of the next batch; nil: the queue has it
}

// New returns an outbox that publishes nothing until Run is called. open makes sure that the stream
// exists.
func New(js jetstream.JetStream, open func(context.Context) error, log *slog.Logger) *Outbox {
	return &Outbox{js: js, open: open, log: log, queue: make(chan *nats.Msg, eventQueue)}
}

// Waiting is how many events wait.
func (p *Outbox) Waiting() int { return len(p.queue) }

// Dropped is how many events were dropped.
func (p *Outbox) Dropped() int64 { return p.dropped.Load() }

// Publish queues an event. It never blocks.
func (p *Outbox) Publish(msg *nats.Msg) {
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

// Err says why no event can be published; nil: as far as is known, events can.
func (p *Outbox) Err() error {
	if err := p.failing.Load(); err != nil {
		return *err
	}
	return nil
}

// Pace waits while many events wait for a stream that works. It bounds how fast events come from
// work that need not hurry.
func (p *Outbox) Pace(ctx context.Context) {
	for len(p.queue) > pacedQueue && p.Err() == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(paceEvery):
		}
	}
}

// Run publishes until the context is done. Then it publishes what is still in the queue, for up to
// flushTimeout.
func (p *Outbox) Run(ctx context.Context) {
	for {
		select {
		case p.first = <-p.queue:
		case <-ctx.Done():
			p.flush(nil)
			return
		}
		for p.first != nil {
			if left := p.deliver(ctx, p.batch()); left != nil {
				p.flush(left)
				return
			}
		}
	}
}

// batch takes events from the queue until it is empty, or the next one has a key that is in the
// batch.
func (p *Outbox) batch() (batch []*nats.Msg) {
	keys := make(map[string]bool)
	for {
		if p.first == nil {
			select {
			case p.first = <-p.queue:
			default:
				return batch
			}
		}
		key := p.first.Header[wire.HeaderSubject][0]
		if keys[key] || len(batch) == publishBatch {
			return batch
		}
		keys[key] = true
		batch, p.first = append(batch, p.first), nil
	}
}

// deliver publishes a batch. It retries until the stream has each event, or will never accept it.
// It returns what is left when the context is done.
func (p *Outbox) deliver(ctx context.Context, batch []*nats.Msg) (left []*nats.Msg) {
	logged := "" // an error is logged once
	for wait := firstPublishPause; ; wait = min(2*wait, lastPublishPause) {
		var err error
		if batch, err = p.attempt(ctx, batch); err == nil {
			if logged != "" {
				p.log.Info("events are published again")
			}
			return nil
		}
		if ctx.Err() != nil {
			return batch
		}
		if logged != err.Error() {
			logged = err.Error()
			p.log.Warn("events cannot be published; they wait",
				"error", err, "waiting", len(p.queue)+len(batch), "dropped", p.dropped.Load())
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// attempt publishes each event of a batch once. It returns those that the stream may lack, in their
// order, and the error of one of them. An event that the stream will never accept is dropped, so
// that it does not delay the next ones.
func (p *Outbox) attempt(ctx context.Context, batch []*nats.Msg) (left []*nats.Msg, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if !p.opened {
		if err := p.open(ctx); err != nil {
			p.failing.Store(&err)
			return batch, err
		}
	}
	errs := make([]error, len(batch))
	var publishing sync.WaitGroup
	for i, msg := range batch {
		publishing.Go(func() { _, errs[i] = p.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0)) })
	}
	publishing.Wait()
	for i, msg := range batch {
		api, ok := errors.AsType[*jetstream.APIError](errs[i])
		switch {
		case errs[i] == nil:
		case errors.Is(errs[i], nats.ErrMaxPayload), ok && api.ErrorCode == codeTooLarge:
			p.dropped.Add(1)
			p.log.Error("an event is dropped, because the stream will never accept it",
				"subject", msg.Subject, "error", errs[i])
		default:
			left, err = append(left, msg), errs[i]
		}
	}
	p.opened = err == nil // else the stream may be gone
	if err == nil {
		p.failing.Store(nil)
	} else {
		p.failing.Store(&err)
	}
	return left, err
}

// flush publishes what the stop left of a batch, and what is in the queue.
func (p *Outbox) flush(batch []*nats.Msg) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if batch == nil {
		batch = p.batch()
	}
	for ; len(batch) > 0; batch = p.batch() {
		if left := p.deliver(ctx, batch); left != nil {
			lost := len(left) + len(p.queue)
			if p.first != nil {
				lost++
			}
			p.log.Warn("events are lost: the stream is unavailable, or too slow for the time that a stop has",
				"error", p.Err(), "lost", lost)
			return
		}
	}
}

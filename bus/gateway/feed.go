package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/events"
)

const (
	// maxShown is how many events are shown.
	maxShown = 100
	// feedPause is the pause before the feed asks the stream for earlier events again.
	feedPause = time.Second
)

// feed keeps the latest events of all generators. It hears them as they are published, also while the stream is away,
// and reads the last ones before that from the stream. Its methods are safe for concurrent use.
type feed struct {
	nc *nats.Conn
	js jetstream.JetStream

	mu     sync.Mutex
	events []events.Event // the newest last
}

// feedView is what the dashboard shows of the feed.
type feedView struct {
	Problem string         `json:"problem"`
	Events  []events.Event `json:"events"` // the newest first
}

// run hears the events until the context is done.
func (f *feed) run(ctx context.Context) {
	sub, err := f.nc.Subscribe(events.Subjects, func(m *nats.Msg) {
		if e, err := events.Parse(m.Subject, m.Header, m.Data); err == nil {
			f.add(func(kept []events.Event) []events.Event { return append(kept, e) })
		}
	})
	if err != nil { // the connection is closed
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		earlier, err := f.stored(ctx)
		if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) { // the first event makes the stream
			f.add(func(kept []events.Event) []events.Event { return append(earlier, kept...) })
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(feedPause):
		}
	}
	<-ctx.Done()
}

// stored reads the last events of the stream.
func (f *feed) stored(ctx context.Context) (found []events.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	stream, err := f.js.Stream(ctx, events.Stream)
	if err != nil {
		return nil, err
	}
	last := stream.CachedInfo().State.LastSeq
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(last, maxShown) - maxShown + 1})
	if err != nil {
		return nil, err
	}
	batch, err := consumer.FetchNoWait(maxShown)
	if err != nil {
		return nil, err
	}
	for m := range batch.Messages() {
		if e, err := events.Parse(m.Subject(), m.Headers(), m.Data()); err == nil {
			found = append(found, e)
		}
	}
	return found, batch.Error()
}

// add adds events, each once: while the stream is away, generators publish an event again and again.
func (f *feed) add(more func(kept []events.Event) []events.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[string]bool)
	all := slices.DeleteFunc(more(f.events), func(e events.Event) bool {
		again := seen[e.ID]
		seen[e.ID] = true
		return again
	})
	f.events = slices.Clone(all[max(0, len(all)-maxShown):])
}

// latest returns the latest events, the newest first.
func (f *feed) latest() []events.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	latest := append([]events.Event{}, f.events...)
	slices.Reverse(latest)
	return latest
}

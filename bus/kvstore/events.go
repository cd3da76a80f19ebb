package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/events"
)

// The bounds of an event stream whose [Events] says nothing else.
const (
	DefaultEventsMaxBytes = 256 << 20
	DefaultEventsMaxAge   = 30 * 24 * time.Hour
)

const (
	// refillBytes is what the stream counts for a refill event of a tag with 16 letters and IDs of 18 digits.
	// TestRefillEventSize measures it.
	refillBytes = 512
	// eventShare is how many subjects fill the stream. One subject gets at most such a part of it, so the refills of
	// one busy tag leave the events of the others in the stream.
	eventShare = 8
)

// Events makes the event stream. Its methods are safe for concurrent use.
type Events struct {
	Config
	MaxBytes int64         // what the stream holds if it is created: 1 MiB or more; 0: DefaultEventsMaxBytes
	MaxAge   time.Duration // how long it keeps an event if it is created; 0: DefaultEventsMaxAge

	inspected sync.Once
}

// Open makes sure that the event stream exists. It may be called again. It leaves an existing stream as it
// is, because an operator may have configured it, and logs once what that stream lacks.
func (e *Events) Open(ctx context.Context) error {
	stream, err := e.JS.Stream(ctx, events.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = replicate(ctx, e.Config, func(replicas int) error {
			return shrink(cmp.Or(e.MaxBytes, DefaultEventsMaxBytes), func(maxBytes int64) (err error) {
				stream, err = e.JS.CreateStream(ctx, jetstream.StreamConfig{
					Name:              events.Stream,
					Description:       "Leafbus: what operators watch",
					Subjects:          []string{events.Subjects},
					Storage:           jetstream.FileStorage,
					MaxAge:            cmp.Or(e.MaxAge, DefaultEventsMaxAge),
					MaxBytes:          maxBytes,
					MaxMsgsPerSubject: eventsPerSubject(maxBytes),
					Replicas:          replicas,
					AllowDirect:       true,
				})
				return err
			})
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil // another generator was first
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", events.Stream, err)
	}
	e.inspected.Do(func() { e.inspect(stream.CachedInfo().Config) })
	return nil
}

// eventsPerSubject is how many events a stream of this size keeps of one subject.
func eventsPerSubject(maxBytes int64) int64 { return max(maxBytes/eventShare/refillBytes, 1) }

// inspect logs what a stream lacks that somebody has made.
func (e *Events) inspect(c jetstream.StreamConfig) {
	if !slices.Contains(c.Subjects, events.Subjects) {
		e.log().Warn("the event stream does not keep all events", "stream", events.Stream, "subjects", c.Subjects,
			"wanted", events.Subjects)
	}
	if c.MaxMsgsPerSubject <= 0 && c.MaxBytes > 0 {
		e.log().Warn("the event stream has no limit per subject: the refills of one busy tag can remove the events "+
			"of all other tags (docs/events.md: How long events stay)", "stream", events.Stream,
			"fix", fmt.Sprintf("nats stream edit %s --max-msgs-per-subject %d", events.Stream,
				eventsPerSubject(c.MaxBytes)))
	}
}

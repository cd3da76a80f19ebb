package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// refillBytes is what the stream counts for a refill event of a tag with 16 letters and IDs of
	// 18 digits.
	refillBytes = 512
	// eventShare is how many subjects fill the stream. One subject gets at most such a part of it,
	// so the refills of one busy tag leave the events of the others in the stream.
	eventShare = 8
)

// Events makes the event stream.
type Events struct {
	Config
	MaxBytes int64         // what the stream holds if it is created: 1 MiB or more; 0: DefaultEventsMaxBytes
	MaxAge   time.Duration // how long it keeps an event if it is created; 0: DefaultEventsMaxAge
}

// Open makes sure that the event stream exists. It may be called again. It leaves an existing
// stream as it is, because an operator may have configured it.
func (e Events) Open(ctx context.Context) error {
	_, err := e.JS.Stream(ctx, events.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = replicate(ctx, e.Config, func(replicas int) error {
			return shrink(cmp.Or(e.MaxBytes, DefaultEventsMaxBytes), func(maxBytes int64) error {
				_, err := e.JS.CreateStream(ctx, jetstream.StreamConfig{
					Name:              events.Stream,
					Description:       "Leafbus: what operators watch",
					Subjects:          []string{events.Subjects},
					Storage:           jetstream.FileStorage,
					MaxAge:            cmp.Or(e.MaxAge, DefaultEventsMaxAge),
					MaxBytes:          maxBytes,
					MaxMsgsPerSubject: maxBytes / eventShare / refillBytes,
					Replicas:          replicas,
					AllowDirect:       true,
				})
				return err
			})
		})
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another generator was first
		return fmt.Errorf("stream %s: %w", events.Stream, err)
	}
	return nil
}

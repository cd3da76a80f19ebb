package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
)

const (
	eventsMaxAge = 30 * 24 * time.Hour

	// DefaultEventsMaxBytes is the size of the event stream: 256 MiB.
	DefaultEventsMaxBytes = 256 << 20
)

// OpenEvents makes sure that the event stream is there. One that exists is
// taken as it is: an operator may have made it so.
func OpenEvents(ctx context.Context, cfg Config, maxBytes int64) error {
	stream, err := cfg.JS.Stream(ctx, bus.EventStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = replicate(ctx, cfg, func(replicas int) (jetstream.Stream, error) {
			return cfg.JS.CreateStream(ctx, jetstream.StreamConfig{
				Name:        bus.EventStream,
				Description: "Leafbus: what operators watch",
				Subjects:    []string{bus.EventSubjects},
				Storage:     jetstream.FileStorage,
				MaxAge:      eventsMaxAge,
				MaxBytes:    maxBytes,
				Replicas:    replicas,
				AllowDirect: true,
			})
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil // another generator was first
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", bus.EventStream, err)
	}
	if subjects := stream.CachedInfo().Config.Subjects; !slices.Contains(subjects, bus.EventSubjects) {
		cfg.log().Warn("the event stream does not keep all events", "stream", bus.EventStream, "subjects", subjects, "wanted", bus.EventSubjects)
	}
	return nil
}

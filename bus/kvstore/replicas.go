package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/wire"
)

// Streams are those that keep the state of an installation. One without opaque tags, or with ZooKeeper, lacks some.
func Streams() []string {
	return []string{streamOf(wire.BucketInstallation), streamOf(wire.BucketTags), streamOf(wire.BucketWorkers),
		streamOf(wire.BucketKeys), events.Stream}
}

// FewReplicas returns an error if a stream of Leafbus has fewer replicas than the configuration asks for, or than a
// cluster should have. It returns nil if JetStream does not say it.
func (c Config) FewReplicas(ctx context.Context) error {
	want := c.Replicas
	if want == 0 && c.Conn.ConnectedClusterName() != "" {
		want = defaultReplicas
	}
	for _, name := range Streams() {
		stream, err := c.JS.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			continue
		case err != nil:
			return nil
		}
		if has := cmp.Or(stream.CachedInfo().Config.Replicas, 1); has < want {
			return fmt.Errorf("the stream %s has %d of %d replicas: the loss of one server can stop or lose it", name, has,
				want)
		}
	}
	return nil
}

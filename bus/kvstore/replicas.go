package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	defaultReplicas = 3
	// A cluster that is starting has too few peers for a while.
	placementTries = 4
	placementPause = 500 * time.Millisecond
)

// replicate calls create with the configured number of replicas. The default is 3 in a cluster, or
// 1 if the cluster has fewer than 3 servers with JetStream. It does not take a server that is away
// for one that does not exist: if the installation's record has 3 replicas, the error stays until
// all are back.
func replicate(ctx context.Context, cfg Config, create func(replicas int) error) error {
	switch {
	case cfg.Replicas > 0:
		err := create(cfg.Replicas)
		if code(err) == codeNotClustered {
			err = fmt.Errorf("%w: --replicas %d needs a cluster of NATS servers, and this server is in none: leave it out, "+
				"or see docs/operate.md: %w", allocator.ErrRefused, cfg.Replicas, err)
		}
		return err
	case !cfg.clustered():
		return create(1)
	}
	for range placementTries {
		err := create(defaultReplicas)
		if c := code(err); c != codeNoPeers && c != codeNotClustered {
			return err
		}
		record, lookErr := cfg.JS.Stream(ctx, streamOf(wire.BucketInstallation))
		if lookErr == nil && record.CachedInfo().Config.Replicas >= defaultReplicas {
			return fmt.Errorf("a NATS server of the cluster is away: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(placementPause):
		}
	}
	cfg.log().Warn("the cluster has fewer than three servers with JetStream: one of them keeps the state; " +
		"losing that server loses the installation (see --replicas)")
	return create(1)
}

// clustered reports whether the NATS server is one of a cluster.
func (c Config) clustered() bool { return c.JS.Conn().ConnectedClusterName() != "" }

// Streams are those that keep the state of an installation. One without opaque tags, or with
// ZooKeeper, lacks some.
func Streams() []string {
	var names []string
	for _, bucket := range buckets {
		names = append(names, streamOf(bucket))
	}
	return append(names, events.Stream)
}

// FewReplicas returns an error if a stream of Leafbus has fewer replicas than the configuration
// asks for, or than a cluster should have. It returns nil if JetStream does not say it.
func (c Config) FewReplicas(ctx context.Context) error {
	want := c.Replicas
	if want == 0 && c.clustered() {
		want = defaultReplicas
	}
	if want < 2 { // one is enough
		return nil
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

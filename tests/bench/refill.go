package main

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/kvstore"
)

// refills compares a reservation in the store with the two calls that it
// cannot do without: a read and a compare-and-set, of a record of the same kind,
// in a bucket of the same server.
func refills(ctx context.Context, p plan) (t *table, err error) {
	s, err := openSite()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	state, err := s.state()
	if err != nil {
		return nil, err
	}
	defer state.Conn.Close()

	tag := allocator.Tag{Name: "bench", MaxID: 1, Step: allocator.DefaultStep}
	store := kvstore.New(state)
	if err := store.Open(ctx); err != nil {
		return nil, err
	}
	if _, err := store.Create(ctx, tag); err != nil {
		return nil, err
	}
	bare, err := copyBucket(ctx, state.JS, tag.Name)
	if err != nil {
		return nil, err
	}

	results, err := p.compare(ctx, 1,
		func(int) error {
			entry, err := bare.Get(ctx, tag.Name)
			if err != nil {
				return err
			}
			_, err = bare.Update(ctx, tag.Name, entry.Value(), entry.Revision())
			return err
		},
		func(int) error {
			_, err := store.Reserve(ctx, tag.Name, tag.Step)
			return err
		})
	if err != nil {
		return nil, err
	}
	base, ours := results[0], results[1]
	t = newTable("refill from the KV store", "per second", "bare get and update", "ratio", "p50 µs", "bare", "p99 µs", "bare")
	t.add("Reserve", whole(median(ours, perSecond)), whole(median(base, perSecond)), hundredths(ratio(ours, base, perSecond)),
		whole(median(ours, p50)), whole(median(base, p50)), whole(median(ours, p99)), whole(median(base, p99)))
	return t, nil
}

// copyBucket makes a bucket like that of the tags, with a copy of one record.
func copyBucket(ctx context.Context, js jetstream.JetStream, key string) (jetstream.KeyValue, error) {
	tags, err := js.KeyValue(ctx, bus.BucketTags)
	if err != nil {
		return nil, err
	}
	entry, err := tags.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "BENCH", History: 1, Storage: jetstream.FileStorage})
	if err != nil {
		return nil, err
	}
	_, err = kv.Put(ctx, key, entry.Value())
	return kv, err
}

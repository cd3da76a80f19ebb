package kvstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// KeyLoss says which opaque tags lack their keys.
type KeyLoss struct {
	Opaque int      // opaque tags, deleted ones included
	Bucket bool     // there are some, and the whole bucket is missing
	Tags   []string // the names that lack a key, sorted. A deleted tag is among them only if the whole bucket is missing
}

// LookForKeys looks whether each opaque tag has a key. It reads all records of tags, which takes seconds if there are a million. Of the keys
// it reads only the names. It changes nothing.
func LookForKeys(ctx context.Context, cfg Config) (loss KeyLoss, err error) {
	deleted := make(map[string]bool) // of all opaque tags
	err = eachOpaque(ctx, cfg, func(t allocator.Tag) { deleted[t.Name] = t.Deleted })
	if loss.Opaque = len(deleted); err != nil || loss.Opaque == 0 {
		return loss, err
	}
	have, err := keys(ctx, cfg.JS, bus.BucketKeys) // after the records: a key is written before the tag's record
	if loss.Bucket = errors.Is(err, jetstream.ErrStreamNotFound); err != nil && !loss.Bucket {
		return loss, fmt.Errorf("bucket %s: %w", bus.BucketKeys, err)
	}
	for tag, deleted := range deleted {
		if !have[tag] && (loss.Bucket || !deleted) {
			loss.Tags = append(loss.Tags, tag)
		}
	}
	slices.Sort(loss.Tags)
	return loss, nil
}

// eachOpaque calls f with the record of each opaque tag, deleted ones included.
func eachOpaque(ctx context.Context, cfg Config, f func(allocator.Tag)) error {
	kv, err := cfg.JS.KeyValue(ctx, bus.BucketTags)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err == nil {
		opaque := []byte(`"` + allocator.OpaqueOrder("")) // most records lack it, and to decode a million takes seconds
		err = eachRecord(ctx, cfg.JS, kv, func(entry jetstream.KeyValueEntry) {
			if !bytes.Contains(entry.Value(), opaque) {
				return
			}
			if t, err := decode(entry); err == nil && t.Order.Domain() != "" {
				f(t)
			}
		})
	}
	if err != nil {
		return fmt.Errorf("reading the records of the tags: %w", err)
	}
	return nil
}

// mayBegin returns an error if the bucket of the keys must not be made, because it was there before: a new one would be in the way of a
// restore. It is asked only while there is no bucket.
func (k *opaqueKeys) mayBegin(ctx context.Context) error {
	loss, err := LookForKeys(ctx, k.cfg)
	if err != nil {
		return fmt.Errorf("%w: it is missing, and it is not known whether there are opaque tags: %w", allocator.ErrUnavailable, err)
	}
	if loss.Bucket { // else another generator made it meanwhile, or there is no opaque tag
		return fmt.Errorf("%w: JetStream lost it, and with it the keys of opaque tags (%d, one is %s): restore it from a backup, see docs/security.md; "+
			"no opaque tag is created meanwhile", allocator.ErrUnavailable, loss.Opaque, loss.Tags[0])
	}
	return nil
}

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

// LookForKeys looks whether each opaque tag has a key. It reads all records of tags, which takes half a minute if there are a
// million. Of the keys it reads only the names. It changes nothing.
func LookForKeys(ctx context.Context, cfg Config) (loss KeyLoss, err error) {
	records, err := readBucket(ctx, cfg, bus.BucketTags, func(string, int, int) {})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return loss, nil
	}
	if err != nil {
		return loss, fmt.Errorf("reading the records of the tags: %w", err)
	}
	have, err := keys(ctx, cfg.JS, bus.BucketKeys) // after the records: a key is written before the tag's record
	lost := errors.Is(err, jetstream.ErrStreamNotFound)
	if err != nil && !lost {
		return loss, fmt.Errorf("bucket %s: %w", bus.BucketKeys, err)
	}
	opaque := []byte(`"` + allocator.OpaqueOrder("")) // most records lack it, and to decode a million takes seconds
	for _, r := range records {
		if !bytes.Contains(r.Value, opaque) {
			continue
		}
		t, _, err := decodeRecord(r.Key, r.Value)
		if err != nil || t.Order.Domain() == "" {
			continue
		}
		loss.Opaque++
		if !have[r.Key] && (lost || !t.Deleted) {
			loss.Tags = append(loss.Tags, r.Key)
		}
	}
	loss.Bucket = lost && loss.Opaque > 0
	slices.Sort(loss.Tags)
	return loss, nil
}

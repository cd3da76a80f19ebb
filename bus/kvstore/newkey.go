package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
)

// Make implements [allocator.Keys]. Should a read have been wrong, and a name that had a record gets a second key, then the write
// of the record fails, and the next attempt finds that the key is another one.
func (k *Keys) Make(ctx context.Context, t allocator.Tag, s allocator.Stored, used bool) (id string, err error) {
	if s.KeyID != "" {
		if err := k.Load(ctx, s.Tag); errors.Is(err, allocator.ErrDamaged) {
			return "", fmt.Errorf("%w: %w; or choose another name", allocator.ErrConflict, err)
		} else if err != nil {
			return "", err
		}
		return s.KeyID, nil
	}
	if p, _ := k.Known(t.Name); used || p != nil {
		_, err := k.read(ctx, t.Name)
		if errors.Is(err, errNoKey) {
			err = fmt.Errorf("%w: IDs of %s were handed out before, and its key is lost (bucket %s). A new key would repeat them: "+
				"restore the bucket from a backup, or choose another name", allocator.ErrConflict, t.Name, bus.BucketKeys)
		}
		if err != nil {
			return "", err
		}
	}
	key, err := k.make(ctx, t.Name, t.Order.Domain())
	return opaque.KeyID(key), err
}

// make returns the key for a new tag: the one that the name has, or else a new one. Several generators may make one: the first
// write counts. If the bucket is lost it makes neither.
func (k *Keys) make(ctx context.Context, tag string, d opaque.Domain) (key []byte, err error) {
	if _, err := k.cfg.JS.Stream(ctx, streamOf(bus.BucketKeys)); errors.Is(err, jetstream.ErrStreamNotFound) {
		loss, err := LookForKeys(ctx, k.cfg)
		if err == nil && loss.Bucket {
			err = fmt.Errorf("JetStream lost it, and with it the keys of opaque tags: restore it from a backup, " +
				"see docs/security.md; no opaque tag is created meanwhile")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: bucket %s: %w", allocator.ErrUnavailable, bus.BucketKeys, err)
		}
	}
	kv, err := openKeys(ctx, k.cfg)
	if err != nil {
		return nil, err
	}
	r, err := k.read(ctx, tag)
	if errors.Is(err, errNoKey) {
		r = keyRecord{Domain: d, Key: opaque.NewKey()}
		var data []byte
		if data, err = json.Marshal(r); err != nil {
			return nil, err
		}
		_, err = kv.Update(ctx, tag, data, 0)
		switch {
		case mismatch(err): // another generator was first
			r, err = k.read(ctx, tag)
		case err != nil: // if it happened, the next attempt finds the key
			err = fmt.Errorf("writing the key of %s: %w", tag, failedWrite(err))
		}
	}
	if err != nil {
		return nil, err
	}
	if r.Domain != d {
		return nil, fmt.Errorf("%s: %w", tag, allocator.OrderConflict(allocator.OpaqueOrder(r.Domain)))
	}
	return r.Key, nil
}

// openKeys opens the bucket, and creates it if it is missing.
func openKeys(ctx context.Context, cfg Config) (jetstream.KeyValue, error) {
	return openStream(ctx, cfg, bus.BucketKeys, keysBytes, func(replicas int, maxBytes int64) error {
		_, err := cfg.JS.CreateStream(ctx, jetstream.StreamConfig{
			Name:                 streamOf(bus.BucketKeys),
			Description:          "Leafbus: the keys of opaque tags. Whoever can read them can reveal IDs",
			Subjects:             []string{subjectOf(bus.BucketKeys) + ">"},
			Storage:              jetstream.FileStorage,
			Replicas:             replicas,
			MaxBytes:             maxBytes,
			MaxMsgsPerSubject:    1,
			Discard:              jetstream.DiscardNew,
			DiscardNewPerSubject: true,
			DenyDelete:           true,
			DenyPurge:            true,
		})
		return err
	})
}

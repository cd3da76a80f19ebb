package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// orphans returns an error if there are tags although the installation's record
// is missing: JetStream lost the record alone.
func orphans(ctx context.Context, cfg Config) error {
	stream, err := cfg.JS.Stream(ctx, "KV_"+bus.BucketTags)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bus.BucketTags, err)
	}
	if stream.CachedInfo().State.Msgs == 0 {
		return nil
	}
	return fmt.Errorf("%w: JetStream lost the installation's record (bucket %s, key %s), but bucket %s still has its tags. "+
		"Write the record again (docs/cluster.md); for a new installation, delete bucket %s too",
		allocator.ErrUnavailable, bus.BucketInstallation, installationKey, bus.BucketTags, bus.BucketTags)
}

// Watches makes the store compare the installation's record with this one from now
// on: see [Store.Err].
func (s *Store) Watches(have Installation) { s.installation.Store(&have) }

// Err returns what [Store.Watch] last found wrong with the installation's record:
// JetStream lost it, or has another installation's. The tags may be lost with it, so
// no tag is created meanwhile: it could begin at 1 a second time. Tags that are there are
// served. nil: nothing is wrong.
func (s *Store) Err() error {
	if err := s.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// checkRecord reads the installation's record. It returns no error if it cannot
// be read, nor if [Store.Watches] was not called.
func (s *Store) checkRecord(ctx context.Context) error {
	own := s.installation.Load()
	if own == nil {
		return nil
	}
	kv, err := s.cfg.JS.KeyValue(ctx, bus.BucketInstallation)
	var entry jetstream.KeyValueEntry
	if err == nil {
		entry, err = kv.Get(ctx, installationKey)
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("%w: JetStream lost the record of installation %s (bucket %s, key %s): see docs/cluster.md for what to do; no tag is created meanwhile",
			allocator.ErrUnavailable, own.ID, bus.BucketInstallation, installationKey)
	}
	if err != nil {
		return nil
	}
	var have Installation
	if json.Unmarshal(entry.Value(), &have) == nil && have.ID != "" && have.ID != own.ID {
		return fmt.Errorf("%w: this generator is of installation %s, and JetStream now has the record of installation %s: see docs/cluster.md for what to do; no tag is created meanwhile",
			allocator.ErrUnavailable, own.ID, have.ID)
	}
	return nil
}

// lookAtRecord keeps what is wrong with the record for [Store.Err], and logs when that
// begins and ends. A replica that is behind may answer a read: only the second
// miss in a row counts.
func (s *Store) lookAtRecord(ctx context.Context, missed *bool) {
	err := s.checkRecord(ctx)
	switch {
	case err != nil && !*missed:
		*missed = true
	case err != nil:
		if s.lost.Swap(&err) == nil {
			record, _ := json.Marshal(s.installation.Load()) // for the operator, who can write it again
			s.cfg.log().Error("the installation's record is lost", "error", err, "record", string(record))
		}
	default:
		*missed = false
		if s.lost.Swap(nil) != nil {
			s.cfg.log().Info("the installation's record is there again")
		}
	}
}

package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// recordTimeout bounds a look at the record. Changes of tags wait meanwhile.
const recordTimeout = time.Second

// Watches makes the store compare the installation's record with this one from now
// on: see [Store.Err].
func (s *Store) Watches(have Installation) { s.installation.Store(&have) }

// Err returns what [Store.Watch] last found wrong with the installation's record:
// JetStream lost it or all tags, or has another installation's. Meanwhile no tag is
// created, except one that begins above 1 where only the tags are lost: it could begin at
// 1 a second time. Tags that are there are served. nil: nothing is wrong.
func (s *Store) Err() error {
	if err := s.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// checkRecord reads the installation's record, and whether the tags are there. It returns no error if it cannot
// be read, nor if [Store.Watches] was not called.
func (s *Store) checkRecord(ctx context.Context) error {
	own := s.installation.Load()
	if own == nil {
		return nil
	}
	kv, err := s.cfg.JS.KeyValue(ctx, bus.BucketInstallation)
	var entry jetstream.KeyValueEntry
	if err == nil {
		entry, err = kv.Get(ctx, InstallationKey)
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("%w: JetStream lost the record of installation %s (bucket %s, key %s): see docs/cluster.md for what to do; no tag is created meanwhile",
			allocator.ErrUnavailable, own.ID, bus.BucketInstallation, InstallationKey)
	}
	if err != nil {
		return nil
	}
	var have Installation
	if json.Unmarshal(entry.Value(), &have) != nil {
		return nil
	}
	if have.ID != "" && have.ID != own.ID {
		return fmt.Errorf("%w: this generator is of installation %s, and JetStream now has the record of installation %s: see docs/cluster.md for what to do; no tag is created meanwhile",
			allocator.ErrUnavailable, own.ID, have.ID)
	}
	return s.checkTags(ctx, have)
}

// errTagsLost: JetStream lost all tags, and still has the installation's record.
var errTagsLost = errors.New("JetStream lost the tags")

// checkTags returns errTagsLost if the bucket of the tags never had a record, although
// the installation has had tags: a stream that JetStream lost begins at its first
// message again. Otherwise it notes that there are tags.
func (s *Store) checkTags(ctx context.Context, have Installation) error {
	kv, err := s.bucket()
	if err != nil {
		return nil
	}
	last, err := lastRevision(ctx, kv)
	switch {
	case err != nil || have.Tags == (last > 0):
	case have.Tags:
		return fmt.Errorf("%w: %w of installation %s (bucket %s is empty): restore them, or add each tag with a --max-id above all its IDs, see docs/cluster.md; no tag is created at 1",
			allocator.ErrUnavailable, errTagsLost, have.ID, bus.BucketTags)
	default:
		_, err := ChangeInstallation(ctx, s.cfg, func(have *Installation) error { have.Tags = true; return nil })
		if err != nil {
			s.cfg.log().Debug("that there are tags is noted later", "error", err)
		}
	}
	return nil
}

// lookAtRecord keeps what is wrong with the record for [Store.Err], and logs when that
// begins and ends. A replica that is behind may answer a read: only the second
// miss in a row counts.
func (s *Store) lookAtRecord(ctx context.Context, missed *bool) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	err := s.checkRecord(ctx)
	switch {
	case err != nil && !*missed:
		*missed = true
	case err != nil:
		if s.lost.Swap(&err) == nil {
			record, _ := json.Marshal(s.installation.Load()) // for the operator, who can write it again
			s.cfg.log().Error("the installation's state is lost", "error", err, "record", string(record))
		}
	default:
		*missed = false
		if s.lost.Swap(nil) != nil {
			s.cfg.log().Info("the installation's state is there again")
		}
	}
}

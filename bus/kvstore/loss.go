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

// errUnread: it is not known whether JetStream lost anything.
var errUnread = errors.New("the installation's record cannot be read")

// checkRecord reads the installation's record, and whether the tags are there. It returns errUnread if that
// cannot be read, and no error if [Store.Watches] was not called.
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
	if err == nil {
		// Any replica may answer a read, also one that kept what the others lost. The leader answers this.
		var info *jetstream.StreamInfo
		if info, err = streamInfo(ctx, kv); err == nil && info.State.Msgs == 0 {
			err = jetstream.ErrKeyNotFound
		}
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("%w: JetStream lost the record of installation %s (bucket %s, key %s): see docs/cluster.md for what to do; no tag is created meanwhile",
			allocator.ErrUnavailable, own.ID, bus.BucketInstallation, InstallationKey)
	}
	var have Installation
	if err == nil {
		err = json.Unmarshal(entry.Value(), &have)
	}
	if err != nil {
		return unread(err)
	}
	if have.ID != "" && have.ID != own.ID {
		return fmt.Errorf("%w: this generator is of installation %s, and JetStream now has the record of installation %s: see docs/cluster.md for what to do; no tag is created meanwhile",
			allocator.ErrUnavailable, own.ID, have.ID)
	}
	return s.checkTags(ctx, have)
}

func unread(err error) error {
	return fmt.Errorf("%w: %w: %w", allocator.ErrUnavailable, errUnread, err)
}

// errTagsLost: JetStream lost all tags, and still has the installation's record.
var errTagsLost = errors.New("JetStream lost the tags")

// checkTags returns errTagsLost if the bucket of the tags never had a record, although
// the installation has had tags: a stream that JetStream lost begins at its first
// message again. Otherwise it notes that there are tags.
func (s *Store) checkTags(ctx context.Context, have Installation) error {
	kv, err := s.bucket()
	var last uint64
	if err == nil {
		last, err = lastRevision(ctx, kv)
	}
	switch {
	case err != nil:
		return unread(err)
	case have.Tags == (last > 0):
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
	case errors.Is(err, errUnread): // what was known before stays
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

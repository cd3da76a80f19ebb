package kvstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// InstallationKey is the key of the installation's record in its bucket.
const InstallationKey = "installation"

// Installation is the record of what one NATS account's generators have in
// common. It is made once; what it says is for life, because IDs of two
// layouts or two stores could be the same.
type Installation struct {
	ID       string `json:"id"`       // random
	Store    string `json:"store"`    // of tags: kv, mysql
	Registry string `json:"registry"` // of workers: kv, zookeeper
	// Database is the ID of the database that keeps the tags, where one
	// does, from the first time that it was reached.
	Database string `json:"database,omitempty"`
	// ZooKeeper is the same for what keeps the records of the workers.
	ZooKeeper string `json:"zookeeper,omitempty"`
	snowflake.Layout
	Created time.Time `json:"created"`
	// Tags is the first sequence of the bucket with the tags; 0: none may be created yet. Any other bucket has lost
	// them.
	Tags uint64 `json:"tags,omitempty,string"`
}

// ReadInstallation returns the installation's record, as the leader of its bucket has it; ok is false if there is none.
// It creates no bucket: an empty one would be in the way of a restore. An error that matches [allocator.ErrRefused]
// will stay; one that matches [ErrNoJetStream] may pass.
func ReadInstallation(ctx context.Context, cfg Config) (have Installation, ok bool, err error) {
	b, err := find(ctx, cfg, wire.BucketInstallation)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return have, false, nil
	}
	if err != nil {
		return have, false, err
	}
	_, have, err = b.installation(ctx)
	return have, have.ID != "", err
}

// installation reads the installation's record. Without an ID there is none.
func (b bucket) installation(ctx context.Context) (r Record, have Installation, err error) {
	r, err = b.get(ctx, InstallationKey)
	if err != nil || len(r.Value) == 0 {
		return r, have, err
	}
	if err := json.Unmarshal(r.Value, &have); err != nil || have.ID == "" {
		return r, Installation{}, fmt.Errorf("%w: the installation's record (bucket %s, key %s) is damaged: %q; "+
			"restore it from a backup",
			allocator.ErrRefused, wire.BucketInstallation, InstallationKey, r.Value)
	}
	return r, have, nil
}

// CreateInstallation makes the installation's record, by compare-and-set, and its bucket if that is missing. It does
// nothing if there is a record: read it then.
func CreateInstallation(ctx context.Context, cfg Config, first Installation) error {
	b, err := open(ctx, cfg, wire.BucketInstallation)
	if err != nil {
		return err
	}
	r, have, err := b.installation(ctx)
	if err != nil || have.ID != "" {
		return err
	}
	value, err := json.Marshal(first)
	if err != nil {
		return err
	}
	_, err = b.put(ctx, InstallationKey, value, r.revision)
	if err != nil && !errors.Is(err, allocator.ErrConflict) {
		return fmt.Errorf("making the installation's record: %w", err)
	}
	return nil
}

// ChangeInstallation changes the installation's record by compare-and-set, and returns what
// is there then. change is called again when another generator was first. If it fails, nothing changes.
func ChangeInstallation(ctx context.Context, cfg Config, change func(*Installation) error) (Installation, error) {
	b, err := find(ctx, cfg, wire.BucketInstallation)
	if err != nil {
		return Installation{}, err
	}
	for {
		r, have, err := b.installation(ctx)
		switch {
		case err != nil:
			return Installation{}, err
		case have.ID == "":
			return Installation{}, fmt.Errorf("%w: the installation's record is lost", allocator.ErrUnavailable)
		}
		if err := change(&have); err != nil {
			return Installation{}, err
		}
		value, err := json.Marshal(have)
		if err != nil || bytes.Equal(value, r.Value) {
			return have, err
		}
		_, err = b.put(ctx, InstallationKey, value, r.revision)
		if err == nil {
			return have, nil
		}
		if !errors.Is(err, allocator.ErrConflict) {
			return Installation{}, fmt.Errorf("changing the installation's record: %w", err)
		}
	}
}

// HasTags reports whether JetStream has tags. Without a record they show that it lost the record.
func HasTags(ctx context.Context, cfg Config) (bool, error) {
	b, err := find(ctx, cfg, wire.BucketTags)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return b.leader != nil && b.leader.CachedInfo().State.Msgs > 0, err
}

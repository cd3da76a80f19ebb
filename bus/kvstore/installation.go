package kvstore

import (
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

// Installation is the record of what one NATS account's generators have in common. It is made once;
// what it says is for life, because IDs of two layouts or two stores could be the same.
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
	// Tags is the first sequence of the bucket with the tags; 0: none may be created yet. Any other
	// bucket has lost them.
	Tags uint64 `json:"tags,omitempty,string"`
}

// ReadInstallation returns the installation's record, as the leader of its bucket has it; ok is
// false if there is none. It creates no bucket: an empty one would be in the way of a restore. An
// error that matches [allocator.ErrRefused] will stay; one that matches [ErrNoJetStream] may pass.
func ReadInstallation(ctx context.Context, cfg Config) (have Installation, ok bool, err error) {
	b, err := find(ctx, cfg, wire.BucketInstallation)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return have, false, nil
	}
	if err != nil {
		return have, false, err
	}
	r, err := b.get(ctx, InstallationKey)
	if err == nil {
		have, err = decodeInstallation(r)
	}
	return have, have.ID != "", err
}

// decodeInstallation reads the installation's record. Without an ID there is none.
func decodeInstallation(r Record) (have Installation, err error) {
	if len(r.Value) == 0 {
		return have, nil
	}
	if err := json.Unmarshal(r.Value, &have); err != nil || have.ID == "" {
		return Installation{}, fmt.Errorf("%w: the installation's record (bucket %s, key %s) is damaged: %q; "+
			"restore it from a backup",
			allocator.ErrRefused, wire.BucketInstallation, InstallationKey, r.Value)
	}
	return have, nil
}

// CreateInstallation makes the installation's record, by compare-and-set, and its bucket if that is
// missing. It does nothing if there is a record: read it then.
func CreateInstallation(ctx context.Context, cfg Config, first Installation) error {
	b, err := open(ctx, cfg, wire.BucketInstallation)
	if err != nil {
		return err
	}
	return b.change(ctx, InstallationKey, func(is Record) ([]byte, error) {
		have, err := decodeInstallation(is)
		if err != nil || have.ID != "" {
			return nil, err
		}
		return json.Marshal(first)
	})
}

// ChangeInstallation changes the installation's record by compare-and-set, and returns what is
// there then. change is called again when another generator was first. If it fails, nothing
// changes.
func ChangeInstallation(
	ctx context.Context, cfg Config, change func(*Installation) error,
) (have Installation, err error) {
	b, err := find(ctx, cfg, wire.BucketInstallation)
	if err != nil {
		return have, err
	}
	err = b.change(ctx, InstallationKey, func(is Record) ([]byte, error) {
		have, err = decodeInstallation(is)
		if err == nil && have.ID == "" {
			err = fmt.Errorf("%w: the installation's record is lost", allocator.ErrUnavailable)
		}
		if err == nil {
			err = change(&have)
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(have)
	})
	if err != nil {
		return Installation{}, err
	}
	return have, nil
}

// HasTags reports whether JetStream has tags. Without a record they show that it lost the record.
func HasTags(ctx context.Context, cfg Config) (bool, error) {
	b, err := find(ctx, cfg, wire.BucketTags)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return b.leader != nil && b.leader.CachedInfo().State.Msgs > 0, err
}

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
	leader, err := leaderOf(ctx, cfg.JS, wire.BucketInstallation)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return have, false, nil
	}
	if err != nil {
		return have, false, unreached(wire.BucketInstallation, err)
	}
	if err := Fit(wire.BucketInstallation, leader.CachedInfo().Config); err != nil {
		return have, false, err
	}
	msg, err := leader.GetLastMsgForSubject(ctx, subjectOf(wire.BucketInstallation)+InstallationKey)
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && msg.Header.Get("KV-Operation") != "" {
		return have, false, nil
	}
	if err != nil {
		return have, false, fmt.Errorf("the installation's record: %w", err)
	}
	if err := json.Unmarshal(msg.Data, &have); err != nil || have.ID == "" {
		return have, false, fmt.Errorf("%w: the installation's record (bucket %s, key %s) is damaged: %q; "+
			"restore it from a backup",
			allocator.ErrRefused, wire.BucketInstallation, InstallationKey, msg.Data)
	}
	return have, true, nil
}

func openInstallation(ctx context.Context, cfg Config) (jetstream.KeyValue, error) {
	return openBucket(ctx, cfg, wire.BucketInstallation, "Leafbus: the installation's record", smallBytes)
}

// CreateInstallation makes the installation's record, by compare-and-set, and its bucket if that is missing. It does
// nothing if there is a record: read it then.
func CreateInstallation(ctx context.Context, cfg Config, first Installation) error {
	record, err := json.Marshal(first)
	if err != nil {
		return err
	}
	kv, err := openInstallation(ctx, cfg)
	if err == nil {
		_, err = kv.Create(ctx, InstallationKey, record)
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("making the installation's record: %w", err)
	}
	return nil
}

// ChangeInstallation changes the installation's record by compare-and-set, and returns what
// is there then. change is called again when another generator was first. If it fails, nothing changes.
func ChangeInstallation(ctx context.Context, cfg Config, change func(*Installation) error) (Installation, error) {
	kv, err := cfg.JS.KeyValue(ctx, wire.BucketInstallation)
	if err != nil {
		return Installation{}, fmt.Errorf("the installation's record: %w", err)
	}
	for {
		entry, err := kv.Get(ctx, InstallationKey)
		if err != nil {
			return Installation{}, fmt.Errorf("the installation's record: %w", err)
		}
		var have Installation
		if err := json.Unmarshal(entry.Value(), &have); err != nil {
			return Installation{}, fmt.Errorf("the installation's record: %w", err)
		}
		if err := change(&have); err != nil {
			return Installation{}, err
		}
		record, err := json.Marshal(have)
		if err != nil || bytes.Equal(record, entry.Value()) {
			return have, err
		}
		_, err = kv.Update(ctx, InstallationKey, record, entry.Revision())
		if err == nil {
			return have, nil
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return Installation{}, fmt.Errorf("changing the installation's record: %w", err)
		}
	}
}

// HasTags reports whether JetStream has tags. Without a record they show that it lost the record.
func HasTags(ctx context.Context, cfg Config) (bool, error) {
	stream, err := streamUnder(ctx, cfg.JS, wire.BucketTags)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bucket %s: %w", wire.BucketTags, err)
	}
	return stream.CachedInfo().State.Msgs > 0, nil
}

package kvstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/snowflake"
)

const installationKey = "installation"

// Kinds of what keeps the tags and the workers.
const (
	KindKV        = "kv"        // JetStream, this package: both
	KindMySQL     = "mysql"     // the tags
	KindZooKeeper = "zookeeper" // the workers
)

// Installation is the record of what one NATS account's generators have in
// common. It is made once; what it says is for life, because IDs of two
// layouts or two stores could be the same.
type Installation struct {
	ID       string `json:"id"`       // random
	Store    string `json:"store"`    // of segments: KindKV, KindMySQL
	Registry string `json:"registry"` // of workers: KindKV, KindZooKeeper
	// Database is the ID of the database that keeps the segments, where one
	// does, from the first time that it was reached.
	Database string `json:"database,omitempty"`
	// ZooKeepers say where the workers' records are, if not in JetStream.
	ZooKeepers []ZooKeeper `json:"zookeepers,omitempty"`
	snowflake.Layout
	Created time.Time `json:"created"`
	// Tags says that there are tags in JetStream, from a moment after the first was
	// created. An empty bucket of tags is then a loss.
	Tags bool `json:"tags,omitempty"`
}

// differences names what is not the same in want, but for ID and time.
func (i Installation) differences(want Installation) []string {
	var d []string
	add := func(name, has, wanted string) {
		if has != wanted {
			d = append(d, fmt.Sprintf("%s is %s there and %s here", name, has, wanted))
		}
	}
	add("the store of segments (--mysql)", i.Store, want.Store)
	add("the registry of workers (--zookeeper)", i.Registry, want.Registry)
	return append(d, i.Layout.Differences(want.Layout)...)
}

// Join returns the installation's record, which it makes from want, by
// compare-and-set, if there is none. known is the ID that this generator has
// served before, or empty. begin, unless it is nil, is called
// before a record is made. If it fails, none is made.
//
// An error that matches [allocator.ErrRefused] says that the generator does not belong
// here: its configuration differs, or the installation that it knows is gone.
func Join(ctx context.Context, cfg Config, want Installation, known string, begin func(context.Context) error) (Installation, error) {
	kv, err := openBucket(ctx, cfg, bus.BucketInstallation, "Leafbus: the installation's record")
	if err != nil {
		return Installation{}, err
	}
	var lost error
	for asked := false; ; {
		entry, err := kv.Get(ctx, installationKey)
		switch {
		case err == nil:
			return admit(entry.Value(), want, known)
		case lost != nil: // begin may have used up the time of the context
			return Installation{}, lost
		case !errors.Is(err, jetstream.ErrKeyNotFound):
			return Installation{}, fmt.Errorf("the installation's record: %w", err)
		}
		if known != "" {
			return Installation{}, fmt.Errorf("%w: this data folder belongs to installation %s, but this NATS has none: "+
				"it lost its state, or it is another one; starting anew there would repeat IDs. "+
				"Restore its JetStream, or name the right --server, or, if you mean a new installation, another --data-dir", allocator.ErrRefused, known)
		}
		if !asked && begin != nil {
			// Read again after an error: the answer may have come from a replica
			// that did not have the record yet.
			asked, lost = true, begin(ctx)
			if lost != nil {
				continue
			}
		}
		if lost = orphans(ctx, cfg); lost != nil {
			continue
		}
		first := want
		first.ID, first.Created = rand.Text(), time.Now().UTC().Truncate(time.Millisecond)
		record, err := json.Marshal(first)
		if err != nil {
			return Installation{}, err
		}
		_, err = kv.Create(ctx, installationKey, record)
		// Whoever was first, the record that counts is the one that is there.
		if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
			return Installation{}, fmt.Errorf("making the installation's record: %w", err)
		}
	}
}

// PinDatabase notes, by compare-and-set, which database keeps the segments,
// unless that is noted already, and returns what is noted.
func PinDatabase(ctx context.Context, cfg Config, database string) (string, error) {
	have, err := change(ctx, cfg, func(have *Installation) error {
		if have.Database == "" {
			have.Database = database
		}
		return nil
	})
	return have.Database, err
}

// change changes the installation's record by compare-and-set, and returns what
// is there then. f is called again when another generator was first.
func change(ctx context.Context, cfg Config, f func(*Installation) error) (Installation, error) {
	kv, err := cfg.JS.KeyValue(ctx, bus.BucketInstallation)
	if err != nil {
		return Installation{}, fmt.Errorf("the installation's record: %w", err)
	}
	for {
		entry, err := kv.Get(ctx, installationKey)
		if err != nil {
			return Installation{}, fmt.Errorf("the installation's record: %w", err)
		}
		var have Installation
		if err := json.Unmarshal(entry.Value(), &have); err != nil {
			return Installation{}, fmt.Errorf("the installation's record: %w", err)
		}
		if err := f(&have); err != nil {
			return Installation{}, err
		}
		record, err := json.Marshal(have)
		if err != nil || bytes.Equal(record, entry.Value()) {
			return have, err
		}
		_, err = kv.Update(ctx, installationKey, record, entry.Revision())
		if err == nil {
			return have, nil
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return Installation{}, fmt.Errorf("changing the installation's record: %w", err)
		}
	}
}

// admit checks the record that is there.
func admit(record []byte, want Installation, known string) (Installation, error) {
	var have Installation
	if err := json.Unmarshal(record, &have); err != nil || have.ID == "" {
		return Installation{}, fmt.Errorf("%w: the installation's record (bucket %s, key %s) is damaged: %q; restore it from a backup",
			allocator.ErrRefused, bus.BucketInstallation, installationKey, record)
	}
	if known != "" && known != have.ID {
		return Installation{}, fmt.Errorf("%w: this data folder belongs to installation %s, but this NATS is installation %s; "+
			"name the right --server, or another --data-dir", allocator.ErrRefused, known, have.ID)
	}
	if d := have.differences(want); len(d) > 0 {
		return Installation{}, fmt.Errorf("%w: the configuration is not that of installation %s: %s",
			allocator.ErrRefused, have.ID, strings.Join(d, "; "))
	}
	return have, nil
}

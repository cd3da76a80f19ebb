package kvstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// If its installation's record is lost, or belongs to another installation, a store
// reports that. It creates no tag until the record is there again.
func TestRecordLost(t *testing.T) {
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	have := installed(t, cfg, "ours")
	store := newStore(t, s)
	store.watchCheck = time.Millisecond
	store.Watches(have)
	order := allocator.Tag{Name: "order", MaxID: 1, Step: 10}
	if _, err := store.Create(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = store.Watch(ctx, func(allocator.Tag) {}) // what comes between two checks it takes for missed
		}
	}()
	defer func() { cancel(); <-ended }()
	says := func(what string, holds func(error) bool) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return holds(store.Err()) })
	}

	restore := saveBucket(t, cfg, bus.BucketInstallation)
	for what, lose := range map[string]func() error{
		"bucket": func() error { return cfg.JS.DeleteKeyValue(ctx, bus.BucketInstallation) },
		"key": func() error {
			kv, err := cfg.JS.KeyValue(ctx, bus.BucketInstallation)
			if err != nil {
				return err
			}
			return kv.Purge(ctx, InstallationKey)
		},
		"another installation's": func() error {
			kv, err := cfg.JS.KeyValue(ctx, bus.BucketInstallation)
			if err != nil {
				return err
			}
			_, err = kv.PutString(ctx, InstallationKey, `{"id":"ANOTHER"}`)
			return err
		},
	} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(ctx, allocator.Tag{Name: "late", MaxID: 1, Step: 10}); !errors.Is(err, allocator.ErrUnavailable) {
			t.Errorf("%s: Create: %v, want %v", what, err, allocator.ErrUnavailable)
		}
		says(what, func(err error) bool {
			return errors.Is(err, allocator.ErrUnavailable) && strings.Contains(err.Error(), have.ID)
		})
		if _, err := store.Reserve(ctx, "order", 1, 1); err != nil {
			t.Errorf("%s: Reserve: %v", what, err)
		}
		if what == "bucket" {
			if _, err := openBucket(ctx, cfg, bus.BucketInstallation, "", smallBytes); err != nil && !removing(err) {
				t.Fatal(err)
			}
		}
		restore()
		says("restored", func(err error) bool { return err == nil })
	}
}

// A store whose bucket lost all tags says so and creates none until they are there
// again: the first IDs of a tag would be handed out a second time.
func TestTagsLost(t *testing.T) {
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	have := installed(t, cfg, "ours")
	noted := func() bool {
		t.Helper()
		return recordOf(t, cfg).Tags
	}
	order, late := allocator.Tag{Name: "order", MaxID: 1, Step: 10}, allocator.Tag{Name: "late", MaxID: 1, Step: 10}
	// A release before this one created the first tag.
	older := newStore(t, s)
	if _, err := older.Create(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, s)
	store.Watches(have)
	missed := false
	if store.lookAtRecord(t.Context(), &missed); !noted() || store.Err() != nil {
		t.Errorf("tags that are there: noted %v, %v", noted(), store.Err())
	}
	restore := saveBucket(t, cfg, bus.BucketTags)
	lose := func() {
		t.Helper()
		if err := cfg.JS.DeleteKeyValue(t.Context(), bus.BucketTags); err != nil {
			t.Fatal(err)
		}
		for err := store.Open(t.Context()); err != nil; err = store.Open(t.Context()) {
			if !removing(err) {
				t.Fatal(err)
			}
		}
	}
	lose()
	if _, err := store.Create(t.Context(), late); !errors.Is(err, allocator.ErrUnavailable) {
		t.Errorf("Create: %v, want %v", err, allocator.ErrUnavailable)
	}
	store.lookAtRecord(t.Context(), &missed)
	store.lookAtRecord(t.Context(), &missed)
	if err := store.Err(); !errors.Is(err, allocator.ErrUnavailable) || !strings.Contains(err.Error(), "lost the tags of installation "+have.ID) {
		t.Errorf("Err: %v", err)
	}
	restore()
	if _, err := store.Create(t.Context(), late); err != nil {
		t.Errorf("Create after the tags were restored: %v", err)
	}
	if store.lookAtRecord(t.Context(), &missed); store.Err() != nil {
		t.Errorf("Err after the tags were restored: %v", store.Err())
	}
	lose()
	order.MaxID = 1001 // an operator knows how far it was
	if _, err := store.Create(t.Context(), order); err != nil {
		t.Errorf("Create above 1: %v", err)
	}
}

// While the installation's record cannot be read, it is not known whether the tags are lost: a tag could begin at 1
// a second time.
func TestRecordUnread(t *testing.T) {
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	store := newStore(t, s)
	store.Watches(installed(t, cfg, "ours"))
	kv, err := cfg.JS.KeyValue(t.Context(), bus.BucketInstallation)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), InstallationKey, "{"); err != nil {
		t.Fatal(err)
	}
	order := allocator.Tag{Name: "order", MaxID: 1, Step: 10}
	if made, err := store.Create(t.Context(), order); !errors.Is(err, allocator.ErrUnavailable) {
		t.Errorf("Create: %+v, %v; want %v", made, err, allocator.ErrUnavailable)
	}
	missed := false
	if store.lookAtRecord(t.Context(), &missed); missed || store.Err() != nil {
		t.Errorf("what cannot be read counts as lost: %v", store.Err())
	}
	if _, err := kv.PutString(t.Context(), InstallationKey, `{"id":"ours"}`); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), order); err != nil {
		t.Errorf("when it can be read again: %v", err)
	}
}

package kvstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
)

// The domain of a name is for life, and so is its key: a tag that is created again goes on with it.
func TestOpaqueIsForLife(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	r := openRecordsOf(t, newConfig(t, s))
	tag := mustCreateOpaque(t, r, opaqueTag(t, "coupon", "d9"))
	for _, used := range []bool{false, true} { // its record may be lost
		k := NewKeys(r.cfg)
		if id, err := k.Make(t.Context(), opaqueTag(t, "coupon", "d9"), allocator.Stored{}, used); err != nil || id != tag.KeyID {
			t.Errorf("again: %s, %v; want %s", id, err, tag.KeyID)
		}
		id, err := k.Make(t.Context(), opaqueTag(t, "coupon", "d10"), allocator.Stored{}, used)
		if !errors.Is(err, allocator.ErrConflict) || !strings.Contains(err.Error(), "an opaque tag with the domain d9") {
			t.Errorf("with another domain: %s, %v", id, err)
		}
	}
	id, err := NewKeys(r.cfg).Make(t.Context(), opaqueTag(t, "order", "53"), allocator.Stored{}, true)
	if !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("a name that was in use and has no key: %s, %v", id, err)
	}
}

// A tag whose key is lost is refused by each generator that does not have it in memory, and gets no other key. One that has it
// goes on. The bucket comes back from a backup, and all go on.
func TestLostKeys(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	old := openRecordsOf(t, cfg)
	tags := []allocator.Tag{
		mustCreateOpaque(t, old, opaqueTag(t, "coupon", "53")),
		mustCreateOpaque(t, old, opaqueTag(t, "gone", "53")),
	}
	coupon, oldKeys := tags[0], NewKeys(cfg)
	first, err := oldKeys.Permutation(t.Context(), coupon)
	if err != nil {
		t.Fatal(err)
	}
	restore := saveBucket(t, cfg, bus.BucketKeys)
	if err := cfg.JS.DeleteStream(t.Context(), streamOf(bus.BucketKeys)); err != nil {
		t.Fatal(err)
	}
	if p, err := oldKeys.Permutation(t.Context(), coupon); err != nil || p != first {
		t.Errorf("a generator with the key in memory: %v", err)
	}
	other := openRecordsOf(t, newConfig(t, s))
	otherKeys := NewKeys(other.cfg)
	refused := func(what string) {
		t.Helper()
		for _, tag := range tags {
			if err := otherKeys.Load(t.Context(), tag); !errors.Is(err, allocator.ErrDamaged) || !strings.Contains(err.Error(), "LEAF_KEYS") {
				t.Errorf("%s: %v", what, err)
			}
			if id, err := otherKeys.Make(t.Context(), tag, allocator.Stored{Tag: tag, Revision: 1}, true); !errors.Is(err, allocator.ErrConflict) {
				t.Errorf("%s: %s was created: %s, %v", what, tag.Name, id, err)
			}
		}
	}
	refused("no bucket")
	for _, k := range []*Keys{oldKeys, otherKeys} {
		if _, err := k.Make(t.Context(), opaqueTag(t, "new", "53"), allocator.Stored{}, false); !errors.Is(err, allocator.ErrUnavailable) ||
			!strings.Contains(err.Error(), "docs/security.md") {
			t.Errorf("a new opaque tag: %v", err)
		}
	}
	if _, err := cfg.JS.Stream(t.Context(), streamOf(bus.BucketKeys)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a refused creation made a bucket, which is in the way of a restore: %v", err)
	}
	if _, err := openBucket(t.Context(), cfg, bus.BucketKeys, "by hand", smallBytes); err != nil {
		t.Fatal(err)
	}
	mustCreateOpaque(t, other, opaqueTag(t, "new", "53"))
	refused("a new bucket")
	for _, tag := range tags { // as if a read had missed the records
		if _, err := otherKeys.make(t.Context(), tag.Name, "53"); err != nil {
			t.Fatal(err)
		}
	}
	refused("another key")

	// The record, too, was lost, and the name was created with another key. This generator has made IDs with the first one.
	again := coupon
	again.KeyID = "another"
	_ = oldKeys.Load(t.Context(), again)
	if _, err := oldKeys.Known("coupon"); !errors.Is(err, allocator.ErrDamaged) {
		t.Errorf("the record names another key than the one in memory: %v", err)
	}
	_ = oldKeys.Load(t.Context(), coupon)
	if p, err := oldKeys.Known("coupon"); p != first || err != nil {
		t.Errorf("the record names the key in memory again: %v", err)
	}

	restore()
	p, err := NewKeys(cfg).Permutation(t.Context(), coupon)
	if err != nil || p.Conceal(5) != first.Conceal(5) {
		t.Errorf("after the restore: %v", err)
	}
}

// Many generators make the key of a tag at once: all get the same.
func TestOneKeyForAll(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	openRecordsOf(t, newConfig(t, s))
	tag := opaqueTag(t, "coupon", "d18")
	var making sync.WaitGroup
	var ids [8]string
	for i := range ids {
		k := NewKeys(newConfig(t, s))
		making.Go(func() {
			var err error
			if ids[i], err = k.Make(context.Background(), tag, allocator.Stored{}, false); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Errorf("keys of one tag: %v", ids)
			break
		}
	}
}

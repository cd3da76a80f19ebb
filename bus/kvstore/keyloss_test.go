package kvstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
)

// Many generators create the first opaque tags at once, each another one. The first of them makes the bucket. None takes the record of
// another one for the rest of a lost bucket.
func TestFirstOpaqueTags(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	mustCreate(t, newStore(t, s), allocator.Tag{Name: "order", MaxID: 1, Step: 10})
	var creating sync.WaitGroup
	for i := range 8 {
		store, tag := newStore(t, s), opaqueTag(t, fmt.Sprint("coupon", i), "53")
		creating.Go(func() {
			if _, err := store.Create(context.Background(), tag); err != nil {
				t.Error(err)
			}
		})
	}
	creating.Wait()
	if loss, err := LookForKeys(t.Context(), newConfig(t, s)); err != nil || !reflect.DeepEqual(loss, KeyLoss{Opaque: 8}) {
		t.Errorf("%+v, %v", loss, err)
	}
}

// All opaque tags are deleted, and the bucket of their keys is lost. Their names need it, so it must come back.
func TestKeysOfDeletedTagsLost(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := newStore(t, s)
	mustCreate(t, store, opaqueTag(t, "coupon", "53"))
	if _, err := store.Delete(t.Context(), "coupon", 1); err != nil {
		t.Fatal(err)
	}
	restore := saveBucket(t, newConfig(t, s), bus.BucketKeys)
	loseKeys(t, s)
	if made, err := newStore(t, s).Create(t.Context(), opaqueTag(t, "new", "53")); !errors.Is(err, allocator.ErrUnavailable) || !strings.Contains(err.Error(), "LEAF_KEYS") {
		t.Errorf("%+v, %v", made, err)
	}
	restore()
	mustCreate(t, newStore(t, s), opaqueTag(t, "new", "53"))
}

// A lost bucket, and single lost keys, are found with the names of the tags.
func TestLookForKeys(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	cfg, store := newConfig(t, s), newStore(t, s)
	finds := func(what string, want KeyLoss) {
		t.Helper()
		if loss, err := LookForKeys(t.Context(), cfg); err != nil || !reflect.DeepEqual(loss, want) {
			t.Errorf("%s: %+v, %v; want %+v", what, loss, err, want)
		}
	}
	finds("no tag", KeyLoss{})
	mustCreate(t, store, allocator.Tag{Name: "order", MaxID: 1, Step: 10})
	finds("no opaque tag", KeyLoss{})
	for _, name := range []string{"a", "gone"} {
		mustCreate(t, store, opaqueTag(t, name, "53"))
	}
	if _, err := store.Delete(t.Context(), "gone", 1); err != nil {
		t.Fatal(err)
	}
	finds("all keys are there", KeyLoss{Opaque: 2})
	early := saveBucket(t, cfg, bus.BucketKeys)
	for _, name := range []string{"c", "b", "late"} {
		mustCreate(t, store, opaqueTag(t, name, "53"))
	}
	if _, err := store.Delete(t.Context(), "late", 1); err != nil {
		t.Fatal(err)
	}
	late := saveBucket(t, cfg, bus.BucketKeys)
	loseKeys(t, s)
	finds("the bucket is lost", KeyLoss{Opaque: 5, Bucket: true, Tags: []string{"a", "b", "c", "gone", "late"}})
	early()
	finds("an old bucket", KeyLoss{Opaque: 5, Tags: []string{"b", "c"}})
	late()
	finds("the right bucket", KeyLoss{Opaque: 5})
}

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A watch must not go blind unnoticed when the bucket was restored, as far
// behind or ahead as it may be.
func TestWatchBreaksWhenItIsBlind(t *testing.T) {
	t.Parallel()
	const patience = 20 * time.Second
	s := natskit.Start(t)
	other := newStore(t, s)
	create := func(tag string) {
		t.Helper()
		if _, err := other.Create(t.Context(), allocator.Tag{Name: tag, MaxID: 1, Step: 10}); err != nil {
			t.Fatal(err)
		}
	}
	create("order")
	for name, disturb := range map[string]func(){
		"restored, behind": func() { saveBucket(t, newConfig(t, s), bus.BucketTags)() },
		"restored, ahead": func() {
			saveBucket(t, newConfig(t, s), bus.BucketTags)()
			for i := range 20 {
				create(fmt.Sprint("more", i))
			}
		},
	} {
		for step := int64(1); step <= 5; step++ { // revisions that a restored bucket does not have
			if _, err := other.Update(t.Context(), "order", allocator.Change{Step: &step}); err != nil {
				t.Fatal(err)
			}
		}
		store := newStore(t, s)
		store.watchCheck = 10 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		saw, broke := make(chan string, 100), make(chan error, 1)
		watch := func() { broke <- store.Watch(ctx, func(t allocator.Tag) { saw <- t.Name }) }
		go watch()
		for tag := ""; tag != "order"; {
			select {
			case tag = <-saw:
			case <-broke: // what does not come between two checks it takes for missed
				go watch()
			case <-ctx.Done():
				t.Fatalf("%s: the tag was not seen", name)
			}
		}
		disturb()
		if err := <-broke; ctx.Err() != nil {
			t.Errorf("%s: the watch went on: %v", name, err)
		}
		cancel()
	}
}

// Somebody deletes a tag's key with the nats CLI: there is no tombstone. Only an operator who says where to
// go on can create the tag again.
func TestKeyDeletedByHand(t *testing.T) {
	t.Parallel()
	store := newStore(t, natskit.Start(t))
	kv, err := store.bucket()
	if err != nil {
		t.Fatal(err)
	}
	ctx := testkit.Context(t)
	if _, err := store.Create(ctx, allocator.Tag{Name: "order", MaxID: 1, Step: 10}); err != nil {
		t.Fatal(err)
	}
	for i, remove := range []func() error{
		func() error { return kv.Delete(ctx, "order") },
		func() error { return kv.Purge(ctx, "order") },
	} {
		if g, err := store.Reserve(ctx, "order", 1, 1); err != nil {
			t.Errorf("Reserve: %v, %v", g, err)
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if g, err := store.Reserve(ctx, "order", 1, 1); !errors.Is(err, allocator.ErrUnknownTag) {
			t.Errorf("Reserve of the deleted key: %v, %v", g, err)
		}
		made, err := store.Create(ctx, allocator.Tag{Name: "order", MaxID: 1, Step: 10})
		if !errors.Is(err, allocator.ErrConflict) || !strings.Contains(err.Error(), "--max-id above all its IDs") {
			t.Fatalf("Create at 1: %+v, %v", made, err)
		}
		from := int64(i+1) * 1000
		if _, err := store.Create(ctx, allocator.Tag{Name: "order", MaxID: from, Step: 10}); err != nil {
			t.Fatalf("Create at %d: %v", from, err)
		}
		if g, err := store.Reserve(ctx, "order", 1, 1); err != nil || g.First != from {
			t.Errorf("Reserve after it was created at %d: %v, %v", from, g, err)
		}
	}
}

package kvstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
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

// What changed while the connection was away is seen at once when it is back.
func TestWatchBeginsAnew(t *testing.T) {
	t.Parallel()
	store := newStore(t, natskit.Start(t))
	if _, err := store.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 10}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	saw, broke := make(chan string, 10), make(chan error, 1)
	go func() { broke <- store.Watch(ctx, func(t allocator.Tag) { saw <- t.Name }) }()
	<-saw
	if err := store.cfg.Conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-saw:
	case err := <-broke:
		t.Errorf("the watch did not begin anew: %v", err)
	}
}

// Where the values that are there at first, or after an interruption, take long, the
// watch is not blind, but not done.
func TestWatchOfMuch(t *testing.T) {
	t.Parallel()
	const (
		patience = 20 * time.Second
		tags     = 200
		each     = 3 * time.Millisecond
	)
	s := natskit.Start(t)
	other := newStore(t, s)
	for i := range tags {
		if _, err := other.Create(t.Context(), allocator.Tag{Name: fmt.Sprint("t", i), MaxID: 1, Step: 10}); err != nil {
			t.Fatal(err)
		}
	}
	store := newStore(t, s)
	store.watchCheck = tags * each / 5
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var saw atomic.Int64
	broke := make(chan error, 1)
	go func() {
		broke <- store.Watch(ctx, func(allocator.Tag) {
			time.Sleep(each)
			saw.Add(1)
		})
	}()
	for _, interrupt := range []func() error{
		func() error { return nil },
		func() error {
			if err := store.cfg.Conn.ForceReconnect(); err != nil {
				return err
			}
			step := int64(1) // what the watch has not seen yet
			_, err := other.Update(ctx, "t0", allocator.Change{Step: &step})
			return err
		},
	} {
		saw.Store(0)
		if err := interrupt(); err != nil {
			t.Fatal(err)
		}
		for saw.Load() < tags {
			select {
			case err := <-broke:
				t.Fatalf("the watch saw %d of %d tags: %v", saw.Load(), tags, err)
			case <-time.After(each):
			}
		}
	}
}

func TestBlind(t *testing.T) {
	at := progress{seen: 7}
	for i, c := range []struct {
		seen, last  uint64
		came, blind bool
	}{
		{7, 7, true, false},
		{7, 8, false, false}, // on its way
		{8, 9, true, false},
		{9, 9, true, false},
		{9, 12, false, false},
		{11, 12, true, false}, // they are coming
		{11, 12, false, true}, // 12 was there at the last check
		{12, 12, true, false},
		{12, 14, false, false},
		{12, 14, true, false}, // what came before, once more
		{12, 14, false, true},
		{14, 5, true, true}, // a bucket that has not come so far
	} {
		at.seen, at.came = c.seen, c.came
		if got := at.blind(c.last); got != c.blind {
			t.Errorf("%d: seen %d of %d: blind %v", i, c.seen, c.last, got)
		}
	}
}

// Somebody deletes a tag's key with the nats CLI: there is no tombstone, and
// yet the tag can be created again.
func TestKeyDeletedByHand(t *testing.T) {
	t.Parallel()
	store := newStore(t, natskit.Start(t))
	tag := allocator.Tag{Name: "order", MaxID: 1, Step: 10}
	kv, err := store.bucket()
	if err != nil {
		t.Fatal(err)
	}
	for _, remove := range []func() error{
		func() error { return nil },
		func() error { return kv.Delete(t.Context(), "order") },
		func() error { return kv.Purge(t.Context(), "order") },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := store.Create(ctx, tag); err != nil {
			t.Errorf("Create: %v", err)
		}
		if g, err := store.Reserve(ctx, "order", 1); err != nil || g.First != 1 {
			t.Errorf("Reserve: %v, %v", g, err)
		}
		cancel()
	}
}

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

// An operator's max_id of a tag is read although the tag's record is written all the time.
func TestFloorsOfBusyTags(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := newStore(t, s)
	const tags = 300
	for i := range tags {
		tag, floor := allocator.Tag{Name: fmt.Sprint("t", i), MaxID: 1, Step: 1}, int64(100)
		_, err := store.Create(t.Context(), tag)
		if err == nil {
			_, err = store.Update(t.Context(), tag.Name, allocator.Change{MaxID: &floor})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rewriteAll(t, func(ctx context.Context, i int) {
		_, _ = store.Reserve(ctx, fmt.Sprint("t", i%tags), 1, 1)
	})
	reader := newStore(t, s)
	for range 20 {
		found := make(map[string]bool)
		if err := reader.Floors(t.Context(), func(tag string, _ int64, _ allocator.Rules) { found[tag] = true }); err != nil {
			t.Fatal(err)
		}
		if len(found) != tags {
			t.Fatalf("%d floors of %d", len(found), tags)
		}
	}
}

// rewriteAll calls write with 0, 1, 2 and so on, from several goroutines, until the test ends.
func rewriteAll(t *testing.T, write func(ctx context.Context, i int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	t.Cleanup(func() { cancel(); writers.Wait() })
	var next atomic.Int64
	for range 4 {
		writers.Go(func() {
			for ctx.Err() == nil {
				write(ctx, int(next.Add(1)))
			}
		})
	}
}

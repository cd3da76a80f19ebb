package kvstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// slowBucket is a bucket with a watch that shows its values, and goes on for a while after
// its end.
type slowBucket struct {
	jetstream.KeyValue
	jetstream.KeyWatcher
	updates chan jetstream.KeyValueEntry
	has     []jetstream.KeyValueEntry
	breaks  bool // after what it has
	never   bool // it is never closed
	ended   bool
}

func (b *slowBucket) WatchAll(ctx context.Context, _ ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	b.updates = make(chan jetstream.KeyValueEntry)
	if b.never {
		return b, nil
	}
	go func() {
		for _, e := range b.has {
			b.updates <- e
		}
		for n := 0; n < 3 && !b.breaks; n++ {
			<-ctx.Done()
			time.Sleep(watchQuiet / 2)
			b.updates <- entry{key: "7"}
		}
		b.ended = true
		close(b.updates)
	}()
	return b, nil
}

func (b *slowBucket) Updates() <-chan jetstream.KeyValueEntry { return b.updates }

// A reading ends its watch, and waits for its end, whether the reading was whole or not.
func TestReadingEndsItsWatch(t *testing.T) {
	for name, c := range map[string]struct {
		bucket slowBucket
		want   error
	}{
		"whole":        {slowBucket{has: []jetstream.KeyValueEntry{entry{key: "5"}, nil}}, nil},
		"given up":     {slowBucket{has: []jetstream.KeyValueEntry{entry{key: "5"}}}, context.DeadlineExceeded},
		"broken":       {slowBucket{has: []jetstream.KeyValueEntry{entry{key: "5"}}, breaks: true}, errWatchEnded},
		"never closed": {slowBucket{never: true}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				records := 0
				err := eachEntry(ctx, &c.bucket, func(jetstream.KeyValueEntry) { records++ })
				if !errors.Is(err, c.want) || err == nil && records != 1 {
					t.Errorf("eachEntry: %d records, %v", records, err)
				}
				if c.bucket.ended == c.bucket.never {
					t.Error("the watch goes on")
				}
			})
		})
	}
}

// A watch that ends while there is more than it has room for is not stuck with it.
func TestWatchOfMuchIsLeft(t *testing.T) {
	s := natskit.Start(t)
	other := newStore(t, s)
	for i := range 600 { // the library keeps 256
		if _, err := other.Create(t.Context(), allocator.Tag{Name: fmt.Sprint("t", i), MaxID: 1, Step: 10}); err != nil {
			t.Fatal(err)
		}
	}
	store := newStore(t, s)
	before := goleak.IgnoreCurrent()
	for range 10 { // it may see the end of its context before what comes next, or after it
		ctx, cancel := context.WithCancel(t.Context())
		err := store.Watch(ctx, func(allocator.Tag) {
			for ctx.Err() == nil && !stuck() {
				runtime.Gosched()
			}
			cancel()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
		cancel()
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// stuck reports whether a watch waits for somebody to take what it has.
func stuck() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "[chan send]:\ngithub.com/nats-io/nats.go/jetstream.(*kvs).WatchFiltered.")
}

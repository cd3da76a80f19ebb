package kvstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
)

// follow runs the watch of a store until the test ends, and returns when it has brought so many tags.
func follow(t *testing.T, s *Store, tags int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, seen := make(chan error, 1), make(chan struct{}, tags)
	go func() {
		for { // a watch that lags too far behind ends, and the generator starts another one
			if err := s.Watch(ctx, func(allocator.Tag) { trySend(seen) }); ctx.Err() != nil {
				ended <- err
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	})
	for range tags {
		<-seen
	}
}

func trySend(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// createAll creates tags that do not exist yet.
func createAll(t *testing.T, s *Store, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := s.Create(t.Context(), allocator.Tag{Name: name, MaxID: 1, Step: 10}); err != nil {
			t.Fatal(err)
		}
	}
}

// A page of a list costs what is on it, however many tags there are.
func TestPageReadsItsTagsAlone(t *testing.T) {
	t.Parallel()
	const tags, page = 3000, 10
	s := natskit.Start(t)
	store := newStore(t, s)
	for i := range tags {
		createAll(t, store, fmt.Sprintf("tag.%05d", i))
	}
	follow(t, store, tags)
	for _, q := range []allocator.Query{{Limit: page}, {After: "tag.01999", Limit: page}, {Contains: "0299", Limit: page}} {
		before := store.cfg.Conn.Stats()
		found, err := store.List(t.Context(), q)
		after := store.cfg.Conn.Stats()
		if err != nil || len(found) != page {
			t.Fatalf("%+v: %d tags, %v", q, len(found), err)
		}
		// The names alone would be 90 KB, and the records of all tags 3000 requests. The watch may ask for something, too.
		if asked, got := after.OutMsgs-before.OutMsgs, after.InBytes-before.InBytes; asked > 2*page || got > 10_000 {
			t.Errorf("%+v: a page of %d tags took %d requests and %d bytes", q, page, asked, got)
		}
	}
}

// A list has each tag that was created before, by whichever generator, also while others are created.
func TestListHasWhatWasCreatedBefore(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	here, there := newStore(t, s), newStore(t, s)
	createAll(t, there, "aaa")
	follow(t, here, 1)
	var busy sync.WaitGroup
	done := make(chan struct{})
	third := newStore(t, s)
	defer busy.Wait()
	defer close(done)
	busy.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if _, err := third.Create(t.Context(), allocator.Tag{Name: fmt.Sprint("noise.", i), MaxID: 1, Step: 10}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 300 {
		name := fmt.Sprintf("tag.%04d", i)
		createAll(t, there, name)
		found, err := here.List(t.Context(), allocator.Query{Prefix: "tag.", Limit: 1000})
		if err != nil || len(found) != i+1 || found[i].Name != name {
			t.Fatalf("after the creation of %s: %d tags, %v", name, len(found), err)
		}
	}
}

// The names of a watch are those that were added, in their order, and a new watch begins with none.
func TestNames(t *testing.T) {
	synctest.Test(t, testNames)
}

func testNames(t *testing.T) {
	var x names
	if _, ok := x.atLeast(t.Context(), 0); ok {
		t.Error("names without a watch")
	}
	for range 2 {
		x.begin()
		var want []string
		for _, i := range rand.Perm(5000) {
			name := fmt.Sprint("tag", i)
			want = append(want, name)
			x.add(name)
			x.add(want[rand.IntN(len(want))]) // a change of a tag that is known
		}
		x.complete()
		slices.Sort(want)
		if got, ok := x.atLeast(t.Context(), len(want)); !ok || !slices.Equal(got, want) {
			t.Errorf("%d names of %d, %v", len(got), len(want), ok)
		}
		if _, ok := x.atLeast(t.Context(), len(want)+1); ok { // it waits for namesWait
			t.Error("more names than were added")
		}
	}
	waits := make(chan bool)
	go func() { _, ok := x.atLeast(t.Context(), 6000); waits <- ok }()
	synctest.Wait()
	if len(x.waiters) != 1 {
		t.Errorf("%d waiters", len(x.waiters))
	}
	x.end()
	if <-waits {
		t.Error("names of a watch that ended")
	}
}

// A name costs its bytes and a string, not the subject that it came with.
func TestNamesAreSmall(t *testing.T) {
	const tags = 100_000
	heap := func() uint64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var x names
	x.begin()
	for i := range tags {
		x.add(fmt.Sprintf("$KV.LEAF_TAGS.customer.%07d", i)[len("$KV.LEAF_TAGS."):])
	}
	x.complete()
	if each := (heap() - before) / tags; each > 40 { // 16 of the name, and 16 of the string
		t.Errorf("a name of 16 letters takes %d bytes", each)
	}
	if sorted, ok := x.atLeast(t.Context(), tags); !ok || len(sorted) != tags {
		t.Errorf("%d names", len(sorted))
	}
}

// To create a tag is one write.
func TestCreationIsOneWrite(t *testing.T) {
	t.Parallel()
	store := newStore(t, natskit.Start(t))
	before := store.cfg.Conn.Stats().OutMsgs
	createAll(t, store, "a", "b", "c")
	if sent := store.cfg.Conn.Stats().OutMsgs - before; sent != 3 {
		t.Errorf("3 creations took %d requests", sent)
	}
}

package allocatortest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// recordWatch: a watch brings each record as it is, tombstones too, and then each change.
func recordWatch(tb testing.TB, b RecordsBackend) {
	one := b.Open(tb)
	names := []string{"order", "user", "deleted"}
	var all []allocator.Stored
	for _, name := range names {
		put(tb, one, trend(name, 11))
		t := trend(name, 21)
		t.Deleted = name == "deleted"
		all = append(all, put(tb, one, t))
	}
	early, late := follow(tb, one), follow(tb, b.Open(tb))
	for _, w := range []*follower{early, late} {
		for _, s := range all {
			w.wait(tb, s)
			if n := w.first(s.Name); n < 1 {
				tb.Errorf("%s came without First, though it was there when the watch began", s.Name)
			}
		}
	}
	for round := range 30 {
		t := trend(names[round%3], int64(31+round))
		t.Deleted = round%4 == 0
		s := put(tb, b.Open(tb), t)
		for _, w := range []*follower{early, late} {
			w.wait(tb, s)
		}
	}
	early.stop(tb)
	put(tb, one, trend("order", 900))
	late.wait(tb, put(tb, one, trend("order", 901)))
	if early.now("order").MaxID >= 900 {
		tb.Errorf("a change came after Watch had returned")
	}
}

// recordWatchWhileWritten: a watch that begins while records are written misses none, and ends with
// each as it is.
func recordWatchWhileWritten(tb testing.TB, b RecordsBackend) {
	const handles, each = 4, 40
	var ws []*follower
	ctx := within(tb)
	last := make([]allocator.Stored, handles)
	errs := make([]error, handles)
	var wg sync.WaitGroup
	for i := range handles {
		r := b.Open(tb)
		wg.Go(func() {
			for j := range each {
				if last[i], errs[i] = tryPut(ctx, r, trend(fmt.Sprint("tag.", i, ".", j%5),
					int64(j+1))); errs[i] != nil {
					return
				}
			}
		})
		ws = append(ws, follow(tb, r))
	}
	wg.Wait()
	ws = append(ws, follow(tb, b.Open(tb)))
	for i, s := range last {
		if errs[i] != nil {
			tb.Fatalf("writing: %v", errs[i])
		}
		for _, w := range ws {
			w.wait(tb, s)
		}
	}
}

// recordSync: when Sync returns, the watch has had all that was written before it was called, by
// any handle, while others go on writing.
func recordSync(tb testing.TB, b RecordsBackend) {
	one, other := b.Open(tb), b.Open(tb)
	w := follow(tb, one)
	quiet := put(tb, other, trend("quiet", 11))
	ctx, cancel := context.WithCancel(within(tb))
	var wg sync.WaitGroup
	busy := b.Open(tb)
	wg.Go(func() {
		for i := int64(1); ctx.Err() == nil; i++ {
			tryPut(ctx, busy, trend(fmt.Sprint("busy.", i%7), i))
			sleep(ctx, time.Duration(rand.IntN(1000))*time.Microsecond)
		}
	})
	for i := range 50 {
		s := put(tb, other, trend("order", int64(i)+11))
		before := w.first("quiet")
		if err := one.Sync(within(tb)); err != nil {
			tb.Fatalf("Sync: %v", err)
		}
		if !w.has(s) {
			tb.Fatalf("after Sync the watch has had %+v of a tag whose record is %+v", w.now("order"), s)
		}
		if w.first("quiet") == before || !w.has(quiet) {
			tb.Fatalf("Sync returned before the watch had brought every record again")
		}
	}
	cancel()
	wg.Wait()
}

// recordSyncWaits: without a watch, Sync waits for one.
func recordSyncWaits(tb testing.TB, b RecordsBackend) {
	one := b.Open(tb)
	s := put(tb, one, trend("order", 11))
	ctx, cancel := context.WithTimeout(within(tb), 20*poll)
	if err := one.Sync(ctx); err == nil {
		tb.Errorf("Sync without a watch returned no error")
	}
	cancel()
	done := make(chan error, 1)
	ctx = within(tb)
	go func() { done <- one.Sync(ctx) }()
	w := follow(tb, one)
	if err := <-done; err != nil || !w.has(s) {
		tb.Errorf("Sync with a watch that begins: %v; the watch has had %+v", err, w.now("order"))
	}
}

// recordRestart: after a loss of all connections the records are there, a watch goes on, and Sync
// works again.
func recordRestart(tb testing.TB, b RecordsBackend) {
	one, other := b.Open(tb), b.Open(tb)
	w := follow(tb, one)
	s := put(tb, other, trend("order", 11))
	w.wait(tb, s)
	before := w.first("order")
	b.Restart(tb)
	load(tb, other, s)
	w.wait(tb, put(tb, other, trend("order", 21)))
	ctx := within(tb)
	for w.first("order") == before {
		if !sleep(ctx, poll) {
			tb.Fatalf("after a loss of the connection the watch did not begin again")
		}
	}
	for {
		s = put(tb, other, trend("order", s.MaxID+10))
		if err := one.Sync(ctx); err == nil {
			break
		} else if !sleep(ctx, poll) {
			tb.Fatalf("Sync after a loss of the connection: %v", err)
		}
	}
	if !w.has(s) {
		tb.Errorf("after Sync the watch has had %+v, want %+v", w.now("order"), s)
	}
}

// recordRestored: after a restore, revisions are given again. A watch that went on from its last
// revision would miss what was written below it.
func recordRestored(tb testing.TB, b RecordsBackend) {
	if b.Save == nil {
		return
	}
	one, other := b.Open(tb), b.Open(tb)
	w := follow(tb, one)
	before := []allocator.Stored{put(tb, other, trend("order", 11)), put(tb, other, trend("user", 11))}
	restore := b.Save(tb)
	for end := int64(21); end < 100; end += 10 {
		w.wait(tb, put(tb, other, trend("order", end)))
	}
	restore()
	w.mu.Lock()
	clear(w.latest) // its revisions mean other records now
	w.mu.Unlock()
	var grown allocator.Stored
	for end := int64(11); end < 200; end += 10 {
		grown = put(tb, other, trend("grown", end))
	}
	if err := one.Sync(within(tb)); err != nil {
		tb.Fatalf("Sync after a restore: %v", err)
	}
	for _, s := range append(before, grown) {
		load(tb, other, s)
		if !w.has(s) {
			tb.Errorf("after a restore and Sync the watch has had %+v, want %+v", w.now(s.Name), s)
		}
	}
}

package allocatortest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// RecordsBackend is the [allocator.Records] under test. Its functions are called from the test's
// goroutine.
type RecordsBackend struct {
	// Open returns a new handle on the records of the test tb, as another generator has it. A new
	// test has no records.
	Open func(tb testing.TB) allocator.Records

	// What a hand in the bucket, or another version, can do to the record of a tag; nil: it cannot.
	Damage  func(tb testing.TB, tag string) // the record becomes one that cannot have been written here
	Remove  func(tb testing.TB, tag string) // as kv.Delete does: the record becomes a marker
	Newer   func(tb testing.TB, tag string) // the record becomes one of a newer version
	Restart func(tb testing.TB)             // ends all connections for a moment

	// Save returns a function that sets all records back to what they are now, as a restore of a
	// backup does; nil: nothing can.
	Save func(tb testing.TB) (restore func())
}

// RunRecords runs the suite for records. Each case gets its backend from a call of open.
func RunRecords(t *testing.T, open func(tb testing.TB) RecordsBackend) {
	for _, c := range []struct {
		name string
		run  func(tb testing.TB, b RecordsBackend)
	}{
		{"FirstWrite", recordFirstWrite},
		{"OtherRevision", recordOtherRevision},
		{"Fields", recordFields},
		{"NamesAreApart", recordNames},
		{"ManyClaims", recordManyClaims},
		{"LateSwaps", recordLateSwaps},
		{"Spoiled", recordSpoiled},
		{"Watch", recordWatch},
		{"WatchWhileWritten", recordWatchWhileWritten},
		{"Sync", recordSync},
		{"SyncWaits", recordSyncWaits},
		{"Restart", recordRestart},
		{"Restored", recordRestored},
		{"ContextDone", recordContextDone},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

// put writes the record of a tag, on what is there. After a conflict or a lost answer it looks
// again.
func put(tb testing.TB, r allocator.Records, t allocator.Tag) allocator.Stored {
	tb.Helper()
	s, err := tryPut(within(tb), r, t)
	if err != nil {
		tb.Fatalf("writing the record of %s: %v", t.Name, err)
	}
	return s
}

func tryPut(ctx context.Context, r allocator.Records, t allocator.Tag) (allocator.Stored, error) {
	for {
		s, err := r.Load(ctx, t.Name)
		if err == nil || s.Revision > 0 { // one that cannot be used can be replaced
			s.Tag = t
			if s.Revision, err = r.Swap(ctx, t, s.Revision); err == nil {
				return s, nil
			}
		}
		if !sleep(ctx, poll) {
			return s, err
		}
	}
}

// load returns the record of a tag once it is want: a Load may be a little behind.
func load(tb testing.TB, r allocator.Records, want allocator.Stored) {
	tb.Helper()
	ctx := within(tb)
	for {
		s, err := r.Load(ctx, want.Name)
		if err == nil && same(s, want) {
			return
		}
		if !sleep(ctx, poll) {
			tb.Fatalf("the record of %s is %+v, %v; want %+v", want.Name, s, err, want)
		}
	}
}

// same reports whether two records are equal.
func same(x, y allocator.Stored) bool {
	if !x.Updated.Equal(y.Updated) || !x.Last.Time.Equal(y.Last.Time) {
		return false
	}
	x.Updated, x.Last.Time = y.Updated, y.Last.Time
	return x == y
}

// trend is a tag in trend order.
func trend(name string, end int64) allocator.Tag {
	return allocator.Tag{Name: name, MaxID: end, Step: 10, Updated: allocator.Now(), Format: 1}
}

// surely reports whether a write was done, or surely not.
func surely(err error) bool { return err == nil || !errors.Is(err, allocator.ErrUncertain) }

// follower collects what a watch brings.
type follower struct {
	mu     sync.Mutex
	latest map[string]allocator.Update // of each tag
	firsts map[string]int              // how often the tag came as one of those that were there when the watch began
	bad    []string
	ended  chan struct{} // closed when Watch has returned
	err    error         // of Watch, once it has returned
	cancel context.CancelFunc
}

// follow watches the records until the test ends, or until stop.
func follow(tb testing.TB, r allocator.Records) *follower {
	w := &follower{latest: make(map[string]allocator.Update), firsts: make(map[string]int), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	var one sync.Mutex
	go func() {
		defer close(w.ended)
		w.err = r.Watch(ctx, func(u allocator.Update) {
			if !one.TryLock() {
				w.wrong("two calls at once")
				return
			}
			defer one.Unlock()
			w.add(u)
		})
	}()
	tb.Cleanup(func() {
		w.stop(tb)
		for _, b := range w.bad {
			tb.Errorf("Watch: %s", b)
		}
	})
	return w
}

func (w *follower) add(u allocator.Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch was := w.latest[u.Name]; {
	case u.Revision == 0:
		w.bad = append(w.bad, u.Name+" came without a revision")
	case u.Revision < was.Revision && !u.First:
		w.bad = append(w.bad, u.Name+" came as it was before")
	case u.Revision == was.Revision && !same(u.Stored, was.Stored):
		w.bad = append(w.bad, u.Name+" came in two forms with one revision")
	}
	w.latest[u.Name] = u
	if u.First {
		w.firsts[u.Name]++
	}
}

func (w *follower) wrong(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bad = append(w.bad, what)
}

// stop ends the watch.
func (w *follower) stop(tb testing.TB) {
	w.cancel()
	<-w.ended
	if w.err == nil {
		tb.Errorf("Watch returned no error")
	}
}

// now returns the last that came of a tag.
func (w *follower) now(tag string) allocator.Update {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest[tag]
}

// has reports whether the last that came of a tag is s.
func (w *follower) has(s allocator.Stored) bool { return same(w.now(s.Name).Stored, s) }

// first returns how often a tag came as one that was there when the watch began.
func (w *follower) first(tag string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.firsts[tag]
}

// wait waits until the last that came of a tag is s.
func (w *follower) wait(tb testing.TB, s allocator.Stored) {
	tb.Helper()
	for ctx := within(tb); !w.has(s); {
		if !sleep(ctx, poll) {
			tb.Fatalf("Watch brought %+v, want %+v", w.now(s.Name), s)
		}
	}
}

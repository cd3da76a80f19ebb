package allocator_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// store is a store in memory under instruments. It fails the test when a tag
// is reserved from twice at once: each allocator must have a store of its own,
// which may share its records with others.
type store struct {
	*allocatortest.MemoryRecords
	tb testing.TB

	mu     sync.Mutex
	before func(ctx context.Context, tag string, n int64) error // of each reservation
	answer *allocator.Grant                                     // of each; nil: what is claimed
	after  func(tag string, r allocator.Range) error            // of each that was done
	calls  []call
	busy   map[string]bool
	most   int // reservations at a time
}

// call is a reservation.
type call struct {
	tag string
	n   int64
	at  time.Time
}

var errAway = errors.New("the store is away")

// newStore returns a store of tags "order", "other", … with the step.
func newStore(tb testing.TB, step int64, tags ...string) *store {
	s := &store{MemoryRecords: allocatortest.NewMemoryRecords(), tb: tb, busy: make(map[string]bool)}
	for _, tag := range append(tags, "order") {
		s.create(tag, 1, step)
	}
	return s
}

// twin returns another store on the same records.
func (s *store) twin() *store {
	return &store{MemoryRecords: s.Open(), tb: s.tb, busy: make(map[string]bool)}
}

// hear lets a hear of another generator that all IDs of the tag below end are in use.
func hear(a *allocator.Allocator, tag string, end int64) {
	heard(a, tag, allocator.Range{First: end - 1, Last: end - 1})
}

// heard lets a hear that another run has claimed a range.
func heard(a *allocator.Allocator, tag string, r allocator.Range) {
	a.Push(allocator.Stored{Tag: allocator.Tag{Name: tag, MaxID: r.Last + 1,
		Last: allocator.Claim{First: r.First, Last: r.Last, Run: "another"}}})
}

// write lets f make the record of a tag out of what there is.
func (s *store) write(tag string, f func(allocator.Stored) (allocator.Tag, error)) allocator.Stored {
	s.tb.Helper()
	return write(s.tb, s.MemoryRecords, tag, f)
}

func write(
	tb testing.TB, m *allocatortest.MemoryRecords, tag string, f func(allocator.Stored) (allocator.Tag, error),
) allocator.Stored {
	tb.Helper()
	for {
		old, err := m.Load(tb.Context(), tag)
		if err != nil {
			tb.Fatalf("Load(%s): %v", tag, err)
		}
		t, err := f(old)
		if err != nil {
			tb.Fatalf("changing %s: %v", tag, err)
		}
		revision, err := m.Swap(tb.Context(), t, old.Revision)
		if err == nil {
			return allocator.Stored{Tag: t, Revision: revision}
		}
		if !errors.Is(err, allocator.ErrConflict) {
			tb.Fatalf("Swap(%s): %v", tag, err)
		}
	}
}

func (s *store) create(tag string, maxID, step int64) allocator.Stored {
	s.tb.Helper()
	return s.createTag(allocator.Tag{Name: tag, MaxID: maxID, Step: step})
}

func (s *store) createTag(t allocator.Tag) allocator.Stored {
	s.tb.Helper()
	return s.write(t.Name, func(old allocator.Stored) (allocator.Tag, error) { return old.Create(t, 0) })
}

// claim claims the next n IDs of a tag for another run.
func (s *store) claim(tag string, n int64) allocator.Range {
	s.tb.Helper()
	made := s.write(tag, func(old allocator.Stored) (allocator.Tag, error) {
		return old.Claim(allocator.Claim{First: old.MaxID, Last: old.MaxID + n - 1, Node: "near", Run: "near", Time: allocator.Now()})
	})
	return allocator.Range{First: made.Last.First, Last: made.Last.Last}
}

// move moves max_id of "order", as an operator does.
func (s *store) move(to int64) allocator.Stored {
	s.tb.Helper()
	return s.change(allocator.Change{MaxID: &to})
}

func (s *store) restep(step int64) allocator.Stored {
	s.tb.Helper()
	return s.change(allocator.Change{Step: &step})
}

func (s *store) change(c allocator.Change) allocator.Stored {
	s.tb.Helper()
	return s.write("order", func(old allocator.Stored) (allocator.Tag, error) { return old.Change(c) })
}

func (s *store) remove() allocator.Stored {
	s.tb.Helper()
	return s.write("order", func(old allocator.Stored) (allocator.Tag, error) { return old.Delete(1) })
}

func (s *store) maxID() int64 {
	s.tb.Helper()
	t, err := s.Load(s.tb.Context(), "order")
	if err != nil {
		s.tb.Fatalf("Load: %v", err)
	}
	return t.MaxID
}

// onReserve sets what happens before each reservation from now on; nil: nothing.
func (s *store) onReserve(f func(ctx context.Context, tag string, n int64) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// onReserved sets what happens after each reservation that is done.
func (s *store) onReserved(f func(tag string, r allocator.Range) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = f
}

func (s *store) slow(d time.Duration) {
	s.onReserve(func(ctx context.Context, _ string, _ int64) error { return sleep(ctx, d) })
}

func (s *store) away() {
	s.onReserve(func(context.Context, string, int64) error { return errAway })
}

func (s *store) back() { s.onReserve(nil) }

// gated lets each reservation wait for one receive from the channel returned.
func (s *store) gated() chan<- struct{} {
	gate := make(chan struct{})
	s.onReserve(func(ctx context.Context, _ string, _ int64) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return gate
}

func (s *store) reserves() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.calls...)
}

// around stands around each reservation, see [allocator.Allocator.Around].
func (s *store) around(ctx context.Context, tag string, n int64, reserve func() (allocator.Grant, error)) (allocator.Grant, error) {
	s.mu.Lock()
	if s.busy[tag] {
		s.tb.Errorf("two refills of %s at a time", tag)
	}
	s.busy[tag] = true
	s.calls = append(s.calls, call{tag, n, time.Now()})
	s.most = max(s.most, len(s.busy))
	before, after, answer := s.before, s.after, s.answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, tag)
	}()
	if before != nil {
		if err := before(ctx, tag, n); err != nil {
			return allocator.Grant{}, err
		}
	}
	if answer != nil {
		return *answer, nil
	}
	g, err := reserve()
	if err == nil && after != nil {
		err = after(tag, g.Range)
	}
	return g, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// events keeps what an allocator published.
type events struct {
	mu   sync.Mutex
	list []allocator.Event
}

func (r *events) notify(e allocator.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

// published returns the events of one type.
func published[E allocator.Event](r *events) []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []E
	for _, e := range r.list {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// wantEpisodes checks that each kind of episode began and ended so often.
func (r *events) wantEpisodes(t *testing.T, episode string, began, ended int) {
	t.Helper()
	var gotBegan, gotEnded int
	switch episode {
	case "refill_failed":
		gotBegan = len(published[allocator.RefillFailed](r))
	case "starved":
		gotBegan = len(published[allocator.Starved](r))
	case "regressed":
		gotBegan = len(published[allocator.Regressed](r))
	}
	for _, e := range published[allocator.Recovered](r) {
		if e.Episode == episode {
			gotEnded++
		}
	}
	if gotBegan != began || gotEnded != ended {
		t.Errorf("%s was published %d times and its end %d times, want %d and %d", episode, gotBegan, gotEnded, began, ended)
	}
}

// start returns an allocator that runs until the test's bubble ends.
func start(t *testing.T, cfg allocator.Config) *allocator.Allocator {
	t.Helper()
	a, stop := startStop(t, cfg)
	t.Cleanup(stop)
	return a
}

func startStop(t *testing.T, cfg allocator.Config) (a *allocator.Allocator, stop func()) {
	cfg.Log = testkit.Quiet
	a = newAllocator(cfg)
	return a, run(a)
}

// newAllocator returns an allocator with the instruments of its store.
func newAllocator(cfg allocator.Config) *allocator.Allocator {
	a := allocator.New(cfg)
	if s, ok := cfg.Records.(interface{ instruments() *store }); ok {
		a.Around(s.instruments().around)
	}
	return a
}

func (s *store) instruments() *store { return s }

// run runs a until stop is called.
func run(a *allocator.Allocator) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	return func() { cancel(); <-done }
}

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// inBubble runs a subtest in virtual time.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// queued sends a request for n IDs that has to wait.
func queued(t *testing.T, a *allocator.Allocator, tag string, n int64) *allocator.Later {
	t.Helper()
	_, w, err := a.Request(nil, tag, n)
	if w == nil || err != nil {
		t.Fatalf("Request(%s, %d): %v, %v; want that it waits", tag, n, w, err)
	}
	return w
}

// take takes n IDs of "order", then lets everything that follows happen.
func take(t *testing.T, a *allocator.Allocator, n int64) []allocator.Range {
	t.Helper()
	ranges, err := a.Take(t.Context(), "order", n)
	if err != nil {
		t.Fatalf("Take(%d): %v", n, err)
	}
	synctest.Wait()
	return ranges
}

func wantRanges(t *testing.T, what string, got []allocator.Range, want ...allocator.Range) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: got %v, want %v", what, got, want)
			return
		}
	}
}

// refused takes n IDs of "order", which must fail with want after exactly d.
func refused(t *testing.T, a *allocator.Allocator, n int64, want error, d time.Duration) error {
	t.Helper()
	begin := time.Now()
	ranges, err := a.Take(t.Context(), "order", n)
	if !errors.Is(err, want) || ranges != nil {
		t.Errorf("Take(%d) = %v, %v; want error %v", n, ranges, err, want)
	}
	if took := time.Since(begin); took != d {
		t.Errorf("Take(%d) was refused after %v, want %v", n, took, d)
	}
	synctest.Wait()
	return err
}

// left is how many IDs of "order" are in memory.
func left(a *allocator.Allocator) int64 {
	synctest.Wait()
	for _, v := range a.Views(allocator.Query{Prefix: "order", Limit: 1}) {
		return v.Left
	}
	return 0
}

// drain takes what is in memory, one ID at a time. More than a store that went
// backwards may leave there is an error.
func drain(t *testing.T, a *allocator.Allocator, c *allocatortest.Checker) {
	t.Helper()
	for n := 0; left(a) > 0; n++ {
		if n == 10_000 {
			t.Fatalf("memory is filled on and on")
		}
		c.Add(take(t, a, 1)...)
	}
}

func unique(t *testing.T, c *allocatortest.Checker) (ids int64) {
	t.Helper()
	ids, err := c.Check()
	if err != nil {
		t.Error(err)
	}
	return ids
}

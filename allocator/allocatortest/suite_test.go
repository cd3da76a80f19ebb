package allocatortest

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

func memoryBackend(open func(*Memory) allocator.Store) func(testing.TB) Backend {
	return func(testing.TB) Backend {
		m := NewMemory()
		return Backend{
			Open: func(testing.TB) allocator.Store { return open(m) },
			Save: func(testing.TB) func() {
				saved := m.Snapshot()
				return func() { m.Restore(saved) }
			},
			Strict: true,
		}
	}
}

func TestMemory(t *testing.T) {
	Run(t, memoryBackend(func(m *Memory) allocator.Store { return m }))
}

// TestHandle runs the suite on handles that replace the record of a strict tag only if it is as they know it.
func TestHandle(t *testing.T) {
	Run(t, memoryBackend(func(m *Memory) allocator.Store { return NewHandle(m, "node", nil) }))
}

// TestOrdered runs the suite on a store of trend order, with its ledger, and one of strict tags.
func TestOrdered(t *testing.T) {
	Run(t, func(testing.TB) Backend {
		trend, strict, ledger := NewMemory(), NewMemory(), NewMemoryLedger()
		return Backend{
			Open: func(testing.TB) allocator.Store {
				return allocator.NewOrdered(allocator.WithLedger(trend, ledger, allocator.NewMarks(), ""), NewHandle(strict, "node", nil), ledger)
			},
			Save: func(testing.TB) func() {
				savedTrend, savedStrict := trend.Snapshot(), strict.Snapshot()
				return func() { trend.Restore(savedTrend); strict.Restore(savedStrict) }
			},
			Gaps: true, Strict: true,
		}
	})
}

// TestClaimed runs the suite on a store with a ledger. Only the store goes backwards.
func TestClaimed(t *testing.T) {
	Run(t, claimedBackend(func(m *Memory) allocator.Store { return m }))
}

func claimedBackend(open func(*Memory) allocator.Store) func(testing.TB) Backend {
	return func(tb testing.TB) Backend {
		ledger := NewMemoryLedger()
		b := memoryBackend(func(m *Memory) allocator.Store {
			return allocator.WithLedger(open(m), ledger, allocator.NewMarks(), "")
		})(tb)
		b.Gaps, b.Strict = true, false
		return b
	}
}

// The faulty stores: each breaks one sentence of the contract.

type readThenWrite struct{ *Memory } // another process may come between

func (s readThenWrite) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	t, err := s.Get(ctx, tag)
	if err != nil {
		return allocator.Grant{}, err
	}
	runtime.Gosched()
	if math.MaxInt64-t.MaxID < n {
		return allocator.Grant{}, allocator.ErrExhausted
	}
	n = min(max(n, t.Step), math.MaxInt64-t.MaxID)
	g := allocator.Grant{Range: allocator.Range{First: t.MaxID, Last: t.MaxID + n - 1}, Step: t.Step}
	t.MaxID += n
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(t)
	return g, nil
}

type cachedStep struct { // takes the step from its memory, the range from the table
	*Memory
	mu   sync.Mutex
	step map[string]int64
}

func (s *cachedStep) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	g, err := s.Memory.Reserve(ctx, tag, n, from)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.step[tag]; !ok && err == nil {
		s.step[tag] = g.Step
	}
	g.First = g.Last - max(n, s.step[tag]) + 1
	return g, err
}

type offByOne struct{ *Memory }

func (s offByOne) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	g, err := s.Memory.Reserve(ctx, tag, n, from)
	g.Last++
	return g, err
}

type takesOne struct{ *Memory }

func (s takesOne) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	return s.Memory.Reserve(ctx, tag, max(n, 1), from)
}

type forgetsOrder struct{ *Memory }

func (s forgetsOrder) Create(ctx context.Context, tag allocator.Tag) (allocator.Tag, error) {
	s.mu.Lock()
	if old, ok := s.tags[tag.Name]; ok && old.Deleted {
		old.Order = tag.Order
		s.tags[tag.Name] = old
	}
	s.mu.Unlock()
	return s.Memory.Create(ctx, tag)
}

type takesInConflict struct{ *Memory }

func (s takesInConflict) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	g, err := s.Memory.Reserve(ctx, tag, n, from)
	if n == 2 {
		return allocator.Grant{}, &allocator.OvertakenError{Tag: tag}
	}
	return g, err
}

type setsStep struct{ *Memory }

func (s setsStep) Update(ctx context.Context, tag string, c allocator.Change) (allocator.Tag, error) {
	c.Step = nil
	return s.Memory.Update(ctx, tag, c)
}

type wraps struct{ *Memory }

func (s wraps) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	g, err := s.Memory.Reserve(ctx, tag, n, from)
	if err == allocator.ErrExhausted {
		one := int64(1)
		s.mu.Lock()
		t := s.tags[tag]
		t.MaxID = one
		s.tags[tag] = t
		s.mu.Unlock()
		return s.Memory.Reserve(ctx, tag, 1, from)
	}
	return g, err
}

type folds struct{ *Memory } // letters' case, as the usual collation does

func (s folds) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	if tag == "ORDER" {
		tag = "order"
	}
	return s.Memory.Reserve(ctx, tag, n, from)
}

type movesBack struct{ *Memory }

func (s movesBack) Update(ctx context.Context, tag string, c allocator.Change) (allocator.Tag, error) {
	t, err := s.Get(ctx, tag)
	if err == nil && c.MaxID != nil && *c.MaxID < t.MaxID {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.MaxID = *c.MaxID
		return s.putLocked(t), nil
	}
	return s.Memory.Update(ctx, tag, c)
}

type forgetsFloor struct{ *Memory }

func (s forgetsFloor) Update(ctx context.Context, tag string, c allocator.Change) (allocator.Tag, error) {
	t, err := s.Memory.Update(ctx, tag, c)
	t.Floor = 0
	return t, err
}

type likes struct{ *Memory } // wildcards in what is searched for

func (s likes) List(ctx context.Context, q allocator.Query) ([]allocator.Tag, error) {
	pattern, err := regexp.Compile(strings.NewReplacer("%", ".*", "_", ".").Replace(regexp.QuoteMeta(q.Contains)))
	if err != nil { // no text
		return nil, nil
	}
	return found(ctx, s.Memory, q, pattern.MatchString)
}

type foldsSearch struct{ *Memory }

func (s foldsSearch) List(ctx context.Context, q allocator.Query) ([]allocator.Tag, error) {
	return found(ctx, s.Memory, q, func(name string) bool {
		return strings.Contains(strings.ToLower(name), strings.ToLower(q.Contains))
	})
}

// found lists as q says, but for names that contain what f says.
func found(ctx context.Context, m *Memory, q allocator.Query, f func(name string) bool) ([]allocator.Tag, error) {
	all, err := m.List(ctx, allocator.Query{Prefix: q.Prefix, After: q.After, Limit: math.MaxInt})
	all = slices.DeleteFunc(all, func(t allocator.Tag) bool { return !f(t.Name) })
	return all[:min(q.Limit, len(all))], err
}

type searchesPage struct{ *Memory } // the page, not the tags

func (s searchesPage) List(ctx context.Context, q allocator.Query) ([]allocator.Tag, error) {
	text := q.Contains
	q.Contains = ""
	tags, err := s.Memory.List(ctx, q)
	return slices.DeleteFunc(tags, func(t allocator.Tag) bool { return !strings.Contains(t.Name, text) }), err
}

// TestFaultyStores shows that the suite finds a store that repeats IDs: a
// suite that passes all is worth nothing.
func TestFaultyStores(t *testing.T) {
	for _, f := range []struct {
		name  string
		open  func(*Memory) allocator.Store
		found string // by this case at least
	}{
		{"read, then write", func(m *Memory) allocator.Store { return readThenWrite{m} }, "ManyHandles"},
		{"step from a cache", func(m *Memory) allocator.Store {
			return &cachedStep{Memory: m, step: make(map[string]int64)}
		}, "StepChanged"},
		{"off by one", func(m *Memory) allocator.Store { return offByOne{m} }, "ManyHandles"},
		{"wraps", func(m *Memory) allocator.Store { return wraps{m} }, "Exhausted"},
		{"folds case", func(m *Memory) allocator.Store { return folds{m} }, "TagsAreApart"},
		{"max_id moves back", func(m *Memory) allocator.Store { return movesBack{m} }, "MaxIDBackwards"},
		{"forgets the floor", func(m *Memory) allocator.Store { return forgetsFloor{m} }, "MaxIDMoved"},
		{"searches with wildcards", func(m *Memory) allocator.Store { return likes{m} }, "Search"},
		{"folds case in a search", func(m *Memory) allocator.Store { return foldsSearch{m} }, "Search"},
		{"searches the page", func(m *Memory) allocator.Store { return searchesPage{m} }, "Search"},
		{"takes an ID with none wanted", func(m *Memory) allocator.Store { return takesOne{m} }, "StrictRanges"},
		{"a deletion forgets the order", func(m *Memory) allocator.Store { return forgetsOrder{m} }, "StrictForLife"},
		{"reads, then writes a strict tag", func(m *Memory) allocator.Store { return readThenWrite{m} }, "StrictManyHandles"},
		{"takes IDs in a conflict", func(m *Memory) allocator.Store { return takesInConflict{m} }, "StrictStaleHandle"},
		{"sets a step", func(m *Memory) allocator.Store { return setsStep{m} }, "StrictChanges"},
	} {
		t.Run(f.name, func(t *testing.T) {
			for _, c := range Cases() {
				if c.Name != f.found {
					continue
				}
				// Some need a race to show: a few tries.
				for range 50 {
					r := &recorder{TB: t}
					r.run(func() { c.Run(r, memoryBackend(f.open)(r)) })
					if r.failed() {
						return
					}
				}
				t.Errorf("%s did not find it", c.Name)
				return
			}
			t.Errorf("no case %s", f.found)
		})
	}
}

// recorder is a [testing.TB] that only notes that the test failed.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	messages []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Helper() {}

func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
	for _, c := range r.cleanups {
		c()
	}
}

func (r *recorder) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.messages) > 0
}

func TestChecker(t *testing.T) {
	var c Checker
	c.Add(allocator.Range{First: 5, Last: 9}, allocator.Range{First: 1, Last: 4})
	if ids, err := c.Check(); ids != 9 || err != nil {
		t.Errorf("Check = %d, %v; want 9 and no error", ids, err)
	}
	c.Add(allocator.Range{First: 10, Last: 10})
	if ids, err := c.Check(); ids != 10 || err != nil {
		t.Errorf("Check = %d, %v; want 10 and no error", ids, err)
	}
	c.Add(allocator.Range{First: 9, Last: 9})
	if _, err := c.Check(); err == nil {
		t.Errorf("an ID in two ranges was not found")
	}
}

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

// world is an installation with a database.
type world struct {
	t       *testing.T
	records *allocatortest.MemoryRecords
	numbers *allocatortest.MemoryNumbers // nil: there is none
}

func newWorld(t *testing.T) *world {
	return &world{t: t, records: allocatortest.NewMemoryRecords(), numbers: allocatortest.NewMemoryNumbers()}
}

// gen is a generator whose calls of the stores can be seen, and can fail.
type gen struct {
	*allocator.Allocator
	events
	w     *world
	index *allocator.Index

	started bool
	mu      sync.Mutex
	calls   []string                    // of the stores
	before  func(call string) error     // of each: "swap", "advance", …
	after   func(call string) error     // of each that is done; an error stands for a lost answer
	pushed  []allocator.Stored          // to the others
	known   allocator.Known             // by other generators
	silent  error                       // of asking them
	stale   map[string]allocator.Stored // what Load returns; none: what there is
	keys    error                       // of loading the key of an opaque tag
	secret  bool                        // there is one for the keys
	leads   bool
}

// join returns one more generator. It follows nothing, and hears nothing, before start.
func (w *world) join(run string, change ...func(*allocator.Config)) *gen {
	g := &gen{w: w, index: allocator.NewIndex(), leads: true}
	cfg := allocator.Config{
		Records: &genRecords{w.records.Open(), g}, Index: g.index, Node: "node of " + run, Run: run, Log: testkit.Quiet, Keys: g,
		Notify: g.notify,
		Leads:  func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.leads },
		Push:   func(s allocator.Stored) { g.mu.Lock(); defer g.mu.Unlock(); g.pushed = append(g.pushed, s) },
		Ask: func(context.Context, string) (allocator.Known, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.known, g.silent
		},
	}
	if w.numbers != nil {
		cfg.Numbers = &genNumbers{w.numbers, g}
	}
	for _, f := range change {
		f(&cfg)
	}
	g.Allocator = allocator.New(cfg)
	w.t.Cleanup(func() {
		if !g.started { // ends its refills
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			g.Run(ctx)
		}
	})
	return g
}

// start lets g follow the records until the test ends.
func (g *gen) start() *gen {
	g.started = true
	g.w.t.Cleanup(run(g.Allocator))
	synctest.Wait()
	return g
}

// on sets what happens before and after each call from now on.
func (g *gen) on(before, after func(call string) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before, g.after = before, after
}

// behind makes Load return these records from now on; nil: what there is.
func (g *gen) behind(stale map[string]allocator.Stored) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stale = stale
}

// failing lets calls of one kind fail from now on.
func (g *gen) failing(what string, err error) {
	g.on(func(call string) error {
		if call == what {
			return err
		}
		return nil
	}, nil)
}

// atFirst returns a hook that does f at the first call of one kind.
func atFirst(what string, f func()) func(string) error {
	var first sync.Once
	return func(call string) error {
		if call == what {
			first.Do(f)
		}
		return nil
	}
}

// called returns the calls since the last time, only those that write if writes is set.
func (g *gen) called(writes bool) (calls []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, call := range g.calls {
		if !writes || call != "load" && call != "peek" && call != "rows" {
			calls = append(calls, call)
		}
	}
	g.calls = nil
	return calls
}

func (g *gen) pushes() []allocator.Stored {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]allocator.Stored(nil), g.pushed...)
}

func (g *gen) lead(leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leads = leads
}

// mostCalls bounds the calls of a test, so that an endless loop fails at once.
const mostCalls = 50_000

// call makes a call of a store.
func (g *gen) call(what string, do func() error) error {
	g.mu.Lock()
	g.calls = append(g.calls, what)
	before, after, endless := g.before, g.after, len(g.calls) > mostCalls
	g.mu.Unlock()
	if endless {
		panic("a generator calls its stores without end")
	}
	if before != nil {
		if err := before(what); err != nil {
			return err
		}
	}
	err := do()
	if err == nil && after != nil {
		err = after(what)
	}
	return err
}

// Load and Make are those of [allocator.Keys].
func (g *gen) Load(context.Context, allocator.Tag) error { return g.keys }

func (g *gen) Make(ctx context.Context, _ allocator.Tag, before func(context.Context) (string, error)) (string, error) {
	if !g.secret {
		if sign, err := before(ctx); sign != "" || err != nil {
			return "", errors.Join(errors.New("lost: "+sign), err)
		}
		g.secret = true
	}
	return "key", nil
}

type genRecords struct {
	*allocatortest.MemoryRecords
	g *gen
}

func (r *genRecords) Load(ctx context.Context, tag string) (s allocator.Stored, err error) {
	err = r.g.call("load", func() error {
		r.g.mu.Lock()
		stale, ok := r.g.stale[tag]
		r.g.mu.Unlock()
		if s = stale; ok {
			return nil
		}
		s, err = r.MemoryRecords.Load(ctx, tag)
		return err
	})
	return s, err
}

func (r *genRecords) Swap(ctx context.Context, t allocator.Tag, revision uint64) (made uint64, err error) {
	err = r.g.call("swap", func() error { made, err = r.MemoryRecords.Swap(ctx, t, revision); return err })
	return made, err
}

type genNumbers struct {
	*allocatortest.MemoryNumbers
	g *gen
}

func (n *genNumbers) Advance(ctx context.Context, tag string, count, step, from int64) (r allocator.Range, now int64, err error) {
	err = n.g.call("advance", func() error { r, now, err = n.MemoryNumbers.Advance(ctx, tag, count, step, from); return err })
	return r, step, err
}

func (n *genNumbers) Peek(ctx context.Context, tag string) (r allocator.Row, err error) {
	err = n.g.call("peek", func() error { r, err = n.MemoryNumbers.Peek(ctx, tag); return err })
	return r, err
}

func (n *genNumbers) Add(ctx context.Context, r allocator.Row) error {
	return n.g.call("add", func() error { return n.MemoryNumbers.Add(ctx, r) })
}

func (n *genNumbers) Raise(ctx context.Context, tag string, end int64, step *int64, description *string) error {
	return n.g.call("raise", func() error { return n.MemoryNumbers.Raise(ctx, tag, end, step, description) })
}

func (n *genNumbers) Mark(ctx context.Context, tag string, mark int64, kind string) error {
	return n.g.call("mark", func() error { return n.MemoryNumbers.Mark(ctx, tag, mark, kind) })
}

func (n *genNumbers) Remove(ctx context.Context, tag string, mark int64, kind string) error {
	return n.g.call("remove", func() error { return n.MemoryNumbers.Remove(ctx, tag, mark, kind) })
}

func (n *genNumbers) Rows(ctx context.Context, f func(allocator.Row)) error {
	return n.g.call("rows", func() error { return n.MemoryNumbers.Rows(ctx, f) })
}

// make makes a tag with its row, as the record says.
func (w *world) make(tag allocator.Tag) allocator.Stored {
	w.t.Helper()
	tag.MaxID = max(tag.MaxID, 1)
	if tag.Order == allocator.Trend && tag.Step == 0 {
		tag.Step = 10
	}
	if tag.Order == allocator.Trend && w.numbers != nil {
		w.numbers.SetRow(allocator.Row{Name: tag.Name, MaxID: tag.MaxID, Step: tag.Step})
	}
	return w.write(tag.Name, func(s allocator.Stored) (allocator.Tag, error) { return s.Create(tag, 0) })
}

func (w *world) write(tag string, f func(allocator.Stored) (allocator.Tag, error)) allocator.Stored {
	w.t.Helper()
	return write(w.t, w.records, tag, f)
}

// raise raises the record of a tag, as another generator does.
func (w *world) raise(tag string, end, floor int64) allocator.Stored {
	w.t.Helper()
	return w.write(tag, func(s allocator.Stored) (allocator.Tag, error) {
		t := s.Rise(end, floor)
		t.Updated = allocator.Now()
		return t, nil
	})
}

func (w *world) record(tag string) allocator.Stored {
	w.t.Helper()
	s, err := w.records.Load(context.Background(), tag)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) row(tag string) allocator.Row { return w.numbers.Snapshot()[tag] }

// want claims n IDs of a tag, at least, and wants those from first to last.
func (g *gen) want(tag string, n, first, last int64) {
	g.w.t.Helper()
	r, err := g.Reserve(g.w.t.Context(), tag, n)
	if err != nil || r.Range != ids(first, last) {
		g.w.t.Errorf("%v, %v; want %d-%d", r.Range, err, first, last)
	}
}

// refused claims an ID, which must fail.
func (g *gen) refused(tag string, want error) error {
	g.w.t.Helper()
	r, err := g.Reserve(g.w.t.Context(), tag, 1)
	if !errors.Is(err, want) {
		g.w.t.Errorf("%v, %v; want error %v", r.Range, err, want)
	}
	return err
}

// wantIDs takes n IDs, and wants that they begin at first.
func (g *gen) wantIDs(tag string, n, first int64) {
	g.w.t.Helper()
	ctx, cancel := context.WithTimeout(g.w.t.Context(), time.Minute)
	defer cancel()
	ranges, err := g.Take(ctx, tag, n)
	if err != nil || ranges[0].First != first {
		g.w.t.Errorf("Take(%s): %v, %v; want %d", tag, ranges, err, first)
	}
	synctest.Wait()
}

package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// TestModel runs several generators on one store through everything that can
// happen to them, in virtual time: slow writes, lost answers, outages, callers
// that give up, operators who move max_id, change steps, delete and create
// tags, tags that are evicted from memory, generators that are killed and started
// again with their marks, and a store that is set back to a backup. No ID may ever come twice; and when all
// is well again, everybody is served. There are three kinds of stores, see [storeKind].
func TestModel(t *testing.T) {
	const runs, shards = 200, 4 // side by side, because they wait for the disk
	random := allocatortest.Seed(t)
	var seeds [runs]uint64
	for i := range seeds {
		seeds[i] = random.Uint64()
	}
	dir := t.TempDir()
	var ids, regressions atomic.Int64
	t.Run("runs", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for run := shard; run < runs && !t.Failed(); run += shards {
					bubble(t, func(t *testing.T) {
						m := &model{
							kind:     storeKind(run % 3),
							store:    allocatortest.NewMemory(),
							ledger:   allocatortest.NewMemoryLedger(),
							dir:      filepath.Join(dir, fmt.Sprint(run)),
							random:   rand.New(rand.NewPCG(seeds[run], uint64(run))),
							seen:     make(map[string]int64),
							checkers: make(map[string]*allocatortest.Checker),
							tags:     []string{"order", "user"},
						}
						m.run(t)
						ids.Add(m.ids)
						regressions.Add(int64(m.regressions))
					})
					if t.Failed() {
						t.Logf("in run %d", run)
					}
				}
			})
		}
	})
	t.Logf("%d IDs, %d times the store went backwards", ids.Load(), regressions.Load())
	if !t.Failed() && (ids.Load() == 0 || regressions.Load() < runs/4) {
		t.Errorf("the model does too little: %d IDs, %d times the store went backwards", ids.Load(), regressions.Load())
	}
}

// storeKind says who notices that the store of a run went backwards, and what follows.
type storeKind int

const (
	alone      storeKind = iota // the generators, if all have heard of all ranges: it is moved up
	shared                      // the same, but an operator must move it
	withLedger                  // the ledger: the store may go back at any moment
)

type model struct {
	kind        storeKind
	store       *allocatortest.Memory
	ledger      *allocatortest.MemoryLedger
	admin       allocator.Store // as operators see it
	dir         string
	random      *rand.Rand // of the driver only
	tags        []string
	checkers    map[string]*allocatortest.Checker
	nodes       []*node
	ids         int64
	regressions int
	evictions   int

	mu     sync.Mutex
	seen   map[string]int64 // what the event stream has
	frozen bool             // no write begins
	calm   bool             // no faults any more
}

type node struct {
	m     *model
	name  string
	store *store

	mu     sync.Mutex
	random *rand.Rand
	a      *allocator.Allocator // nil: it is down
	stop   func()
}

func (m *model) run(t *testing.T) {
	m.admin = m.store
	if m.kind == withLedger {
		m.admin = allocator.WithLedger(m.store, m.ledger, allocator.NewMarks(), "")
	}
	for _, tag := range m.tags {
		m.checkers[tag] = new(allocatortest.Checker)
		m.create(t, tag)
	}
	for i := range 3 {
		n := &node{m: m, name: fmt.Sprintf("%s-node%d", m.dir, i), random: m.fork()}
		n.store = &store{Memory: m.store, tb: t, shared: m.kind == shared, busy: make(map[string]bool)}
		n.store.before, n.store.after = n.before, n.after
		m.nodes = append(m.nodes, n)
		n.start(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for _, n := range m.nodes {
		for range 2 {
			random := m.fork()
			callers.Go(func() { n.calls(ctx, t, random) })
		}
	}
	backup := m.store.Snapshot()
	for range 40 {
		time.Sleep(time.Duration(m.random.IntN(400)) * time.Millisecond)
		tag := m.tags[m.random.IntN(len(m.tags))]
		switch m.random.IntN(18) {
		case 0, 1: // an operator moves max_id
			if r, err := m.admin.Get(ctx, tag); err == nil {
				to := r.MaxID + m.random.Int64N(500)
				m.admin.Update(ctx, tag, allocator.Change{MaxID: &to})
			}
		case 2:
			step := 1 + m.random.Int64N(50)
			m.admin.Update(ctx, tag, allocator.Change{Step: &step})
		case 3:
			m.admin.Delete(ctx, tag, 1)
		case 4, 5, 6:
			m.create(t, tag)
		case 7, 8, 9:
			n := m.nodes[m.random.IntN(len(m.nodes))]
			n.kill()
			if m.random.IntN(2) == 0 {
				time.Sleep(time.Second)
			}
			n.start(t)
		case 10:
			backup = m.store.Snapshot()
		case 11:
			m.restore(backup)
		case 12, 13:
			m.heal(t)
		default:
			if a := m.nodes[m.random.IntN(len(m.nodes))].a; a != nil {
				a.EvictIdle()
				m.evictions++
			}
		}
		m.checkTroubles(t)
	}

	// All is well again: everybody is served.
	m.mu.Lock()
	m.calm = true
	m.mu.Unlock()
	cancel()
	callers.Wait()
	for _, tag := range m.tags {
		m.create(t, tag)
	}
	m.heal(t)
	time.Sleep(10 * time.Second)
	synctest.Wait()
	for _, n := range m.nodes {
		for _, tag := range m.tags {
			for _, size := range []int64{1, 1000, 1, 1} {
				ranges, err := n.a.Take(t.Context(), tag, size)
				if err != nil {
					t.Errorf("when all was well again, %s got no %d IDs of %s: %v", n.name, size, tag, err)
				}
				m.checkers[tag].Add(ranges...)
			}
		}
		if got := n.a.Waiting(); got != 0 {
			t.Errorf("%s has %d requests that wait", n.name, got)
		}
	}
	for _, n := range m.nodes {
		n.kill()
	}
	for tag, c := range m.checkers {
		ids, err := c.Check()
		if err != nil {
			t.Errorf("%s: %v", tag, err)
		}
		m.ids += ids
	}
}

func (m *model) fork() *rand.Rand {
	return rand.New(rand.NewPCG(m.random.Uint64(), m.random.Uint64()))
}

func (m *model) checkTroubles(t *testing.T) {
	for _, n := range m.nodes {
		if n.a == nil {
			continue
		}
		if err := n.a.CheckTroubles(); err != nil {
			t.Errorf("%s: %v", n.name, err)
		}
	}
}

func (m *model) create(t *testing.T, tag string) {
	_, err := m.admin.Create(t.Context(), allocator.Tag{Name: tag, MaxID: 1, Step: 1 + m.random.Int64N(50)})
	if err != nil && !errors.Is(err, allocator.ErrExists) {
		t.Errorf("Create: %v", err)
	}
}

// restore sets the store back. Without a ledger it does so at a moment when no write is under way and
// everybody has heard of all that was reserved: a request that was sent before and done after it
// looks like one to a store that is well.
func (m *model) restore(backup map[string]allocator.Tag) {
	if m.kind == withLedger {
		m.store.Restore(maps.Clone(backup))
		m.regressions++
		return
	}
	m.mu.Lock()
	m.frozen = true
	m.mu.Unlock()
	time.Sleep(time.Second) // longer than any write takes
	synctest.Wait()
	m.store.Restore(maps.Clone(backup))
	m.regressions++
	m.mu.Lock()
	m.frozen = false
	m.mu.Unlock()
}

// heal moves max_id past all that was ever seen, as an operator does who has
// looked into it and into the alerts.
func (m *model) heal(t *testing.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, tag := range m.tags {
		if r, err := m.admin.Get(t.Context(), tag); err == nil {
			to := max(r.MaxID, m.seen[tag])
			for _, n := range m.nodes {
				if n.a != nil {
					to = max(to, n.a.Seen(tag))
				}
			}
			if _, err := m.admin.Update(t.Context(), tag, allocator.Change{MaxID: &to}); err != nil && !errors.Is(err, allocator.ErrConflict) {
				t.Errorf("Update: %v", err)
			}
		}
	}
}

// start starts the generator with the marks in its file. What the others have
// reserved it reads from the stream.
func (n *node) start(t *testing.T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.a != nil {
		return
	}
	marks, err := allocator.OpenMarks(n.name)
	if err != nil {
		t.Fatal(err)
	}
	n.m.mu.Lock() // so that no write, and none ahead of a request either, comes before
	var store allocator.Store = n.store
	if n.m.kind == withLedger {
		store = allocator.WithLedger(n.store, lossy{n.m.ledger, n}, marks, "")
	} else {
		for tag, end := range n.m.seen {
			marks.Observe(tag, end)
		}
	}
	a, stop := startStop(t, allocator.Config{
		Store: store, Marks: marks, Recent: n.name + ".recent", Reserved: n.publish,
		Notify: func(e allocator.Event) {
			if r, ok := e.(allocator.Regressed); ok && r.Action == allocator.Refused && n.m.kind != shared {
				t.Errorf("%s: %+v", n.name, r)
			}
		},
		MaxWait: 500 * time.Millisecond, MaxBatch: 5000, MaxStep: 200, MaxWaiting: 20,
	})
	n.a = a
	n.m.mu.Unlock()
	n.stop = func() { stop(); marks.Close() }
}

func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.a == nil {
		return
	}
	n.stop()
	n.m.mu.Lock()
	n.a = nil
	n.m.mu.Unlock()
}

// publish reports a range to all other generators.
func (n *node) publish(tag string, r allocator.Range) {
	n.m.mu.Lock()
	n.m.seen[tag] = max(n.m.seen[tag], r.Last+1)
	var others []*allocator.Allocator
	for _, other := range n.m.nodes {
		if other != n && other.a != nil {
			others = append(others, other.a)
		}
	}
	n.m.mu.Unlock()
	for _, a := range others {
		a.Reserved(tag, r)
	}
}

// chance is true once in so many times, while there are faults.
func (n *node) chance(in int) bool {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	return !n.m.calm && n.random.IntN(in) == 0
}

func (n *node) before(context.Context, string, int64) error {
	n.m.mu.Lock()
	frozen := n.m.frozen
	n.m.mu.Unlock()
	if frozen {
		return allocatortest.ErrFault
	}
	if n.chance(4) {
		return allocatortest.ErrFault // not done
	}
	return nil
}

func (n *node) after(string, allocator.Range) error {
	if n.chance(3) {
		time.Sleep(time.Duration(1+n.m.tick(n)) * time.Millisecond) // slow
	}
	if n.chance(6) {
		return allocatortest.ErrFault // done
	}
	return nil
}

func (m *model) tick(n *node) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return n.random.IntN(200)
}

// calls takes IDs, one after the other, until the context is done.
func (n *node) calls(ctx context.Context, t *testing.T, random *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		n.m.mu.Lock()
		a := n.a
		n.m.mu.Unlock()
		if a == nil {
			continue
		}
		tag, size := n.m.tags[random.IntN(len(n.m.tags))], int64(1)
		switch random.IntN(10) {
		case 0:
			size = 1 + random.Int64N(2000)
		case 1, 2, 3:
			size = 1 + random.Int64N(20)
		}
		limited, cancel := ctx, context.CancelFunc(func() {})
		if random.IntN(5) == 0 {
			limited, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(100))*time.Millisecond)
		}
		ranges, err := a.Take(limited, tag, size)
		cancel()
		var got int64
		for _, r := range ranges {
			got += r.Len()
		}
		switch {
		case err == nil && got != size:
			t.Errorf("%d IDs were asked for, %d came: %v", size, got, ranges)
		case err != nil && ranges != nil:
			t.Errorf("an error and IDs: %v, %v", err, ranges)
		case errors.Is(err, allocator.ErrExhausted), errors.Is(err, allocator.ErrBadCount), errors.Is(err, allocator.ErrBadTag), errors.Is(err, allocator.ErrBatchTooLarge):
			t.Errorf("refused with %v", err)
		}
		n.m.checkers[tag].Add(ranges...)
	}
}

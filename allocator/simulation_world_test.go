package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// The tags of a world.
const (
	simTrend  = "t"
	simStrict = "s"
)

// simWorld is where generators live: in a bubble, and so in virtual time.
type simWorld struct {
	random *simRandom // of what happens to the world
	begin  time.Time
	trace  func(format string, args ...any)

	// What kind of world it is.
	numbers bool   // there is a database
	faults  string // what goes back: none, db, split (two databases that both accept writes), js (the records), both

	records *allocatortest.MemoryRecords
	db, db2 *allocatortest.MemoryNumbers // db2 is what the last generator uses in a split
	nodes   []*simNode
	strict  allocatortest.History
	ctx     context.Context
	doing   sync.WaitGroup // what goes on beside
	calm    atomic.Bool    // no faults any more

	mu          sync.Mutex
	old         map[string][]allocator.Stored // the last records that were replaced
	handed      map[string][]simHanded        // to callers, in the order of IDs
	claimed     int64                         // the highest end that a record of simTrend had
	floors      []*simFloor
	recordsBack time.Time // when the records went back last; zero: never
	forgotten   bool      // both stores have forgotten how far simTrend was: only generators know
	repeats     bool      // the records went back, and nothing else knows how far they were
	happened    map[string]int64
	err         error // the first thing that was wrong
}

// simHanded is a range that a caller got.
type simHanded struct {
	allocator.Range
	by string
	at time.Duration
}

// simFloor is what an operator was promised: below it no ID is handed out any more.
type simFloor struct {
	tag    string
	below  int64
	at     time.Time
	exempt map[string]bool // runs that were named, because they did not confirm it
}

func newSimWorld(seed uint64, trace func(string, ...any)) *simWorld {
	random := newSimRandom(seed, 0)
	w := &simWorld{
		random: random, begin: time.Now(), trace: func(string, ...any) {}, numbers: !random.in(4),
		records: allocatortest.NewMemoryRecords(), db: allocatortest.NewMemoryNumbers(),
		old: make(map[string][]allocator.Stored), handed: make(map[string][]simHanded),
		happened: make(map[string]int64),
	}
	w.faults = simPick(random, "none", "js", "js")
	if w.numbers {
		w.faults = simPick(random, "none", "db", "split", "js", "both")
	}
	if trace != nil {
		w.trace = func(format string, args ...any) {
			trace("%v "+format, append([]any{time.Since(w.begin)}, args...)...)
		}
	}
	for i := range 3 {
		w.nodes = append(w.nodes, &simNode{w: w, name: fmt.Sprint(i), far: i == 2 && random.in(3),
			own:    make(map[string]int64),
			random: newSimRandom(seed, uint64(100+i))})
	}
	w.trace("%v", w)
	return w
}

// String says what kind of world it is.
func (w *simWorld) String() string {
	return fmt.Sprintf("with a database: %v, faults: %s, one is far: %v", w.numbers, w.faults, w.nodes[2].far)
}

// database returns the one that a generator uses.
func (n *simNode) database() *allocatortest.MemoryNumbers {
	w := n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.db2 != nil && n == w.nodes[2] {
		return w.db2
	}
	return w.db
}

// fail notes what is wrong.
func (w *simWorld) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(format, args...)
}

func (w *simWorld) failLocked(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %v: "+format, append([]any{time.Since(w.begin)}, args...)...)
		w.trace("%v", w.err)
	}
}

func (w *simWorld) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

func (w *simWorld) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.happened[what]++
}

// later lets f happen after d.
func (w *simWorld) later(d time.Duration, f func()) {
	w.doing.Go(func() { time.Sleep(d); f() })
}

// handOut notes IDs that a caller got. None may come twice, and none below what operators were promised.
func (w *simWorld) handOut(r *simRun, tag string, ranges []allocator.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	cut := now.Before(r.n.cut)
	for _, ids := range ranges {
		w.happened["IDs"] += ids.Len()
		w.trace("%s hands out %v of %s", r.name, ids, tag)
		for _, f := range w.floors {
			if f.tag == tag && ids.First < f.below && now.After(f.at) && !r.stale && !(cut && f.exempt[r.name]) {
				w.failLocked("%s hands out %v of %s below %d, which was promised at %v", r.name, ids, tag, f.below,
					f.at.Sub(w.begin))
			}
		}
		all := w.handed[tag]
		i, _ := slices.BinarySearchFunc(all, ids.First, func(h simHanded, first int64) int {
			return int(min(max(h.Last-first, -1), 1))
		})
		if i < len(all) && all[i].First <= ids.Last {
			if w.repeats {
				w.happened["repeated, as nobody knew"]++
				continue
			}
			w.failLocked("%s hands out %v of %s, and %s had %v at %v", r.name, ids, tag, all[i].by, all[i].Range,
				all[i].at)
		}
		w.handed[tag] = slices.Insert(all, i, simHanded{ids, r.name, time.Since(w.begin)})
	}
}

// run lets the world go on with faults, and then without, and returns what was wrong.
func (w *simWorld) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	w.put(allocator.Tag{Name: simTrend, MaxID: 1, Step: 40})
	w.put(allocator.Tag{Name: simStrict, MaxID: 1, Order: allocator.Strict})
	if w.numbers {
		w.db.SetRow(allocator.Row{Name: simTrend, MaxID: 1, Step: 40})
	}
	if w.faults == "split" {
		w.db2 = allocatortest.NewMemoryNumbers()
		w.db2.Restore(w.db.Snapshot())
	}
	var callers sync.WaitGroup
	for i, n := range w.nodes {
		n.start()
		callers.Go(func() { n.calls(ctx, newSimRandom(uint64(i), 1), simTrend, 80*time.Millisecond) })
		callers.Go(func() { n.calls(ctx, newSimRandom(uint64(i), 2), simStrict, 200*time.Millisecond) })
	}
	faulty, stop := context.WithTimeout(ctx, simPick(w.random, 8*time.Second, 15*time.Second, 25*time.Second))
	if w.faults == "both" { // these are far apart
		faulty, stop = context.WithTimeout(ctx, 70*time.Second)
	}
	c := &simChaos{w: w, forgot: time.Now(), random: newSimRandom(uint64(w.random.n(1<<40)), 3)}
	var chaos sync.WaitGroup
	chaos.Go(func() { c.strike(faulty) })
	chaos.Go(func() { c.operators(faulty) })
	chaos.Wait()
	stop()
	if !w.failed() {
		w.endFaults()
	}
	cancel()
	callers.Wait()
	for _, n := range w.nodes {
		n.run.stop()
	}
	w.doing.Wait()
	synctest.Wait()
	if _, err := w.strict.Check(); err != nil && !w.repeats {
		w.fail("%v", err)
	}
	return w.err
}

// put writes a record by hand.
func (w *simWorld) put(t allocator.Tag) {
	for {
		s, _ := w.records.Load(context.Background(), t.Name)
		if _, err := w.records.Swap(context.Background(), t, s.Revision); err == nil {
			return
		}
	}
}

// endFaults checks that every generator serves when the faults have ended.
func (w *simWorld) endFaults() {
	w.calm.Store(true)
	w.mu.Lock()
	for _, n := range w.nodes {
		n.cut, n.frozen = time.Time{}, time.Time{}
	}
	w.db2 = nil
	w.records.SetErr(nil)
	w.mu.Unlock()
	time.Sleep(10 * time.Second) // two polls, and what is late has come
	row, _ := w.db.Peek(w.ctx, simTrend)
	stored, err := w.records.Load(w.ctx, simTrend)
	if gone := stored.Revision == 0 || stored.Deleted; err != nil || row.MaxID == 0 && (gone || w.numbers) {
		// Otherwise the polls have made it.
		_, err = w.nodes[0].run.a.Create(w.ctx, allocator.Tag{Name: simTrend, MaxID: 2, Step: 40}, 0, false)
		if err != nil && !errors.Is(err, allocator.ErrExists) {
			w.fail("when all was well again, %s could not be created: %v", simTrend, err)
		}
	}
	time.Sleep(10 * time.Second)
	for _, n := range w.nodes {
		for _, tag := range []string{simTrend, simStrict} {
			for range 3 {
				if err := n.run.take(w.ctx, tag, 100); err != nil {
					w.fail("when all was well again, %s refused a request for %s: %v", n.run.name, tag, err)
				}
			}
		}
		if err := n.run.a.CheckTroubles(); err != nil {
			w.fail("%s: %v", n.run.name, err)
		}
	}
}

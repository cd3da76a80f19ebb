package allocator_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// recently is how long a range that a store offers may be under way before it is claimed.
const recently = 6 * time.Second

// simWorld is where generators live: in a bubble, and so in virtual time.
type simWorld struct {
	begin  time.Time
	random *simRandom // of what happens to the world
	dir    string     // for the marks; empty: they are in memory
	trace  func(format string, args ...any)

	// What kind of world it is.
	tags         []string
	goesBack     bool // the store
	ledgerBack   bool // the ledger
	shared       bool // others write to the table too
	gentle       bool // every request is answered soon
	rowDeleted   bool // by SQL, once; of the driver
	losesReports bool
	faulty       int64 // how rarely a request has a fault
	maxWait      time.Duration
	pace         time.Duration // the longest pause of a caller

	ledger   *allocatortest.MemoryLedger // nil: tags in JetStream
	ctx      context.Context             // of all that is not a generator's
	doing    sync.WaitGroup              // what goes on beside the driver
	callers  sync.WaitGroup
	live     atomic.Int64 // requests and reports under way
	calm     atomic.Bool  // no faults any more
	wentBack atomic.Bool  // the store did, once
	nodes    []*simNode

	mu         sync.Mutex
	db         *allocatortest.Memory // the one that all should use
	splitting  bool
	frozen     bool      // no request arrives anywhere
	awayStore  time.Time // until then
	awayLedger time.Time
	backAt     time.Time        // when the store went back last
	low        map[string]int64 // and where its tags were then
	calmSince  time.Time        // from then on nothing may be refused; zero: not yet
	old        map[string]allocator.Entry
	highest    map[string]int64             // the end of all ranges that generators held or claimed
	forgotten  map[string][]allocator.Range // what store and ledger both forgot, and some generator did not know
	handed     map[string][]simHanded       // to callers
	confirmed  map[string][]simConfirmed    // to operators
	floorsLost bool                         // the place of the floors went back
	happened   map[string]int64
	err        error // the first thing that was wrong
}

// simHanded is a range that a caller got.
type simHanded struct {
	allocator.Range
	by string
	at time.Duration
}

// simConfirmed is a max_id that an operator moved, and when that was confirmed.
type simConfirmed struct {
	floor int64
	at    time.Time
}

func newSimWorld(seed uint64, dir string, trace func(string, ...any)) *simWorld {
	random := newSimRandom(seed, 0)
	w := &simWorld{
		begin: time.Now(), random: random, trace: func(string, ...any) {},
		tags: []string{"order", "user"}[:1+random.n(2)], losesReports: random.in(2), faulty: simPick[int64](random, 8, 15, 30, 60, 200),
		maxWait: simPick(random, 500*time.Millisecond, 2*time.Second), pace: simPick(random, 20*time.Millisecond, 60*time.Millisecond),
		db: allocatortest.NewMemory(), low: make(map[string]int64), old: make(map[string]allocator.Entry), highest: make(map[string]int64),
		forgotten: make(map[string][]allocator.Range), handed: make(map[string][]simHanded), confirmed: make(map[string][]simConfirmed),
		happened: make(map[string]int64),
	}
	if trace != nil {
		w.trace = func(format string, args ...any) { trace("%v "+format, append([]any{w.now()}, args...)...) }
	}
	if random.in(20) {
		w.dir = dir
	}
	if !random.in(5) {
		w.ledger = allocatortest.NewMemoryLedger()
		w.ledgerBack = random.in(4)
		w.shared = !w.ledgerBack && random.in(8)
		w.gentle = !w.ledgerBack && !w.shared && random.in(6)
	}
	w.goesBack = !random.in(4)
	for i := range 2 + random.n(4) {
		w.nodes = append(w.nodes, &simNode{
			w: w, name: fmt.Sprint("node", i), random: newSimRandom(seed, uint64(100+i)), own: make(map[string]int64), db: w.db,
		})
	}
	w.trace("%v", w)
	return w
}

// String says what kind of world it is.
func (w *simWorld) String() string {
	return fmt.Sprintf("ledger: %v, store goes back: %v, ledger goes back: %v, shared: %v, gentle: %v, marks in files: %v, %d generators",
		w.ledger != nil, w.goesBack, w.ledgerBack, w.shared, w.gentle, w.dir != "", len(w.nodes))
}

func (w *simWorld) now() time.Duration { return time.Since(w.begin) }

// fail notes what is wrong.
func (w *simWorld) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(format, args...)
}

func (w *simWorld) failLocked(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %v: "+format, append([]any{w.now()}, args...)...)
		w.trace("%v", w.err)
	}
}

func (w *simWorld) note(what string) { w.count(what, 1) }

func (w *simWorld) count(what string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.happened[what] += n
}

// later lets f happen after d. It counts as under way until then.
func (w *simWorld) later(d time.Duration, f func()) {
	w.live.Add(1)
	w.doing.Go(func() {
		time.Sleep(d)
		f()
		w.live.Add(-1)
	})
}

func (w *simWorld) storeAway() error  { return w.isAway(&w.awayStore) }
func (w *simWorld) ledgerAway() error { return w.isAway(&w.awayLedger) }

func (w *simWorld) isAway(until *time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen || time.Now().Before(*until) {
		return errSimAway
	}
	return nil
}

func (w *simWorld) oldEntry(tag string) (allocator.Entry, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.old[tag]
	return e, ok
}

// keepEntry notes the record that a write replaced, and that all below end is claimed, though the answer
// may come after store and ledger have forgotten it.
func (w *simWorld) keepEntry(tag string, replaced allocator.Entry, end int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.old[tag] = replaced
	w.highest[tag] = max(w.highest[tag], end)
}

// handOutLocked notes IDs that a caller got. They must be above what operators had moved max_id to, if the
// generator hears them.
func (w *simWorld) handOutLocked(r *simRun, tag string, begin time.Time, ranges []allocator.Range) {
	now := time.Now()
	floor := int64(0)
	for _, c := range w.confirmed[tag] {
		if c.at.Before(now) {
			floor = max(floor, c.floor)
		}
	}
	hears := !r.n.cut && r.serving && r.n.heard.Before(begin) && !w.floorsLost
	for _, ids := range ranges {
		w.handed[tag] = append(w.handed[tag], simHanded{ids, r.name, w.now()})
		w.trace("%s hands out %v of %s", r.name, ids, tag)
		if hears && ids.First < floor {
			w.failLocked("%s hands out %v of %s, below the confirmed max_id %d", r.name, ids, tag, floor)
		}
	}
}

// expose looks for what store and ledger have both forgotten, and some generator that runs does not know.
// Only such IDs may come twice. A ledger that goes back may also forget what a store that went back shortly
// before has offered again: claims of that may be under way.
func (w *simWorld) expose(ledgerBack bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for tag, end := range w.highest {
		w.exposeLocked(tag, end, ledgerBack && !w.frozen && time.Since(w.backAt) < recently)
	}
}

// exposeLocked is expose for a tag of which generators held ranges up to end.
func (w *simWorld) exposeLocked(tag string, end int64, recent bool) {
	least := end // all know of all below it
	for _, n := range w.nodes {
		if n.run != nil {
			least = min(least, n.run.knows[tag])
		}
	}
	known := w.db.Snapshot()[tag].MaxID
	for _, n := range w.nodes {
		known = min(known, n.db.Snapshot()[tag].MaxID)
	}
	low, ok := w.low[tag]
	if recent = recent && ok; recent {
		known = min(known, low)
	}
	if w.ledger != nil {
		e, _ := w.ledger.Read(context.Background(), tag)
		known = max(known, e.End)
	}
	switch {
	case known >= end:
	case least < end, recent:
		w.happened["forgotten"]++
		w.trace("forgotten of %s: from %d to %d", tag, known, end-1)
		w.forgotten[tag] = append(w.forgotten[tag], allocator.Range{First: known, Last: end - 1})
	default:
		w.happened["forgotten, but known"]++
	}
}

// noteBack notes that a database is or may be used that has forgotten something.
func (w *simWorld) noteBack(db *allocatortest.Memory, what string) {
	w.wentBack.Store(true)
	w.mu.Lock()
	w.happened[what]++
	w.trace("%s", what)
	if time.Since(w.backAt) >= recently {
		clear(w.low)
	}
	w.backAt = time.Now()
	now := db.Snapshot()
	for tag := range w.highest {
		at := now[tag].MaxID
		if was, ok := w.low[tag]; ok {
			at = min(at, was)
		}
		w.low[tag] = at
	}
	w.floorsLost = w.floorsLost || w.ledger == nil
	w.mu.Unlock()
	w.expose(false)
}

// run lets the world go on with faults, and then without, and returns what was wrong.
func (w *simWorld) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	for _, tag := range w.tags {
		w.db.Create(ctx, allocator.Tag{Name: tag, MaxID: 1, Step: 1 + w.random.n(50)})
	}
	for i, n := range w.nodes {
		n.start(false)
		for j := range 1 + w.random.n(2) {
			random := newSimRandom(uint64(w.random.n(1<<62)), uint64(10*i)+uint64(j))
			w.callers.Go(func() { n.calls(ctx, random) })
		}
	}
	d := &simDriver{w: w}
	for i := int64(0); i < 20+w.random.n(30) && !w.failed(); i++ {
		time.Sleep(w.random.upTo(200 * time.Millisecond))
		d.step()
	}
	d.endFaults()
	cancel()
	w.callers.Wait()
	for _, n := range w.nodes {
		if n.run != nil {
			n.run.stop()
		}
	}
	w.doing.Wait()
	synctest.Wait()
	return cmp.Or(w.err, w.unique())
}

func (w *simWorld) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// unique returns an error if an ID came twice that not both store and ledger have forgotten.
func (w *simWorld) unique() error {
	for _, tag := range slices.Sorted(maps.Keys(w.handed)) {
		all := w.handed[tag]
		slices.SortFunc(all, func(x, y simHanded) int { return cmp.Compare(x.First, y.First) })
		for i := 1; i < len(all); i++ {
			last := all[i-1] // of those before, the one that reaches farthest
			if all[i].First <= last.Last {
				twice := allocator.Range{First: all[i].First, Last: min(all[i].Last, last.Last)}
				if !w.mayRepeat(tag, twice) {
					return fmt.Errorf("%v of %s came twice: from %s at %v in %v, and from %s at %v in %v",
						twice, tag, last.by, last.at, last.Range, all[i].by, all[i].at, all[i].Range)
				}
				w.happened["repeated, as nobody knew"]++
			}
			if last.Last > all[i].Last {
				all[i].Last, all[i].by, all[i].at = last.Last, last.by, last.at
			}
		}
	}
	return nil
}

func (w *simWorld) mayRepeat(tag string, twice allocator.Range) bool {
	for id := twice.First; id <= twice.Last; id++ {
		if !slices.ContainsFunc(w.forgotten[tag], func(r allocator.Range) bool { return r.First <= id && id <= r.Last }) {
			return false
		}
	}
	return true
}

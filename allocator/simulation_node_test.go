package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
)

// simNode is a generator, with a folder that outlives its processes.
type simNode struct {
	w      *simWorld
	name   string
	random *simRandom // of its requests
	runs   int

	// Guarded by the world's lock.
	db    *allocatortest.Memory
	own   map[string]int64 // its own marks, as in the folder
	cut   bool             // it hears no reports and no operators
	heard time.Time        // since when it hears operators
	run   *simRun          // nil: it is down
}

// simRun is a process of a generator.
type simRun struct {
	n     *simNode
	name  string
	a     *allocator.Allocator
	store allocator.Store // as its allocator has it
	marks *allocator.Marks
	stop  func()

	// Guarded by the world's lock.
	serving bool             // it has read the floors
	knows   map[string]int64 // the end of all ranges of a tag that it held, or heard of

	mu     sync.Mutex
	moved  map[string]int  // how often it moved max_id up
	alerts map[string]int  // that the store went backwards
	open   map[string]bool // episodes, as "tag episode"
	err    error           // the first thing that is wrong with its events
}

func (n *simNode) database() *allocatortest.Memory {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.db
}

func (n *simNode) up() *simRun {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.run == nil || !n.run.serving {
		return nil
	}
	return n.run
}

// start starts the generator, with or without what is in its folder.
func (n *simNode) start(empty bool) {
	w := n.w
	n.runs++
	r := &simRun{n: n, name: fmt.Sprintf("%s.%d", n.name, n.runs), moved: make(map[string]int), alerts: make(map[string]int), open: make(map[string]bool)}
	w.mu.Lock()
	if empty {
		n.own = make(map[string]int64)
	}
	r.knows = maps.Clone(n.own)
	w.mu.Unlock()
	r.marks = n.openMarks(empty)
	r.store = &simStore{r: r}
	if w.ledger != nil {
		r.store = allocator.WithLedger(r.store, simLedger{r}, r.marks, "")
	}
	r.a = allocator.New(allocator.Config{
		Store: r.store, Marks: r.marks, Log: testkit.Quiet, Notify: r.notify, Reserved: r.reserved,
		MaxWait: w.maxWait, MaxBatch: 5000, MaxStep: 200, MaxWaiting: 50,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.a.Run(ctx) }()
	r.stop = func() { cancel(); <-done; r.marks.Close() }
	w.trace("%s starts, empty: %v", r.name, empty)
	w.mu.Lock()
	n.run, n.cut = r, false
	w.mu.Unlock()
	w.expose(false)
	w.doing.Go(func() { n.hear(ctx, r) })
}

// openMarks returns the marks that are in the folder: a real one in some worlds.
func (n *simNode) openMarks(empty bool) *allocator.Marks {
	if n.w.dir != "" {
		path := filepath.Join(n.w.dir, n.name)
		if empty {
			os.Remove(path)
		}
		marks, err := allocator.OpenMarks(path)
		if err != nil {
			n.w.fail("%v", err)
			return allocator.NewMarks()
		}
		return marks
	}
	marks := allocator.NewMarks()
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	for tag, end := range n.own {
		marks.Observe(tag, end)
	}
	return marks
}

// hear reads the floors, as after a start and after a time without peers, and serves from then on.
func (n *simNode) hear(ctx context.Context, r *simRun) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		err := r.store.Floors(attempt, r.a.Raise)
		cancel()
		if err == nil {
			n.w.mu.Lock()
			if n.run == r && !n.cut {
				r.serving, n.heard = true, time.Now()
			}
			n.w.mu.Unlock()
			return
		}
		sleep(ctx, 100*time.Millisecond+n.random.upTo(100*time.Millisecond))
	}
}

// crash ends the process in the middle of everything. What it has sent may still arrive.
func (n *simNode) crash() {
	n.w.mu.Lock()
	r := n.run
	n.run = nil
	n.w.mu.Unlock()
	if r == nil {
		return
	}
	n.w.trace("%s crashes", r.name)
	r.stop()
	r.checkEvents(false)
}

// setCut cuts the generator off from the reports of its peers and from operators, and ends that.
func (n *simNode) setCut(cut bool) {
	n.w.mu.Lock()
	r, was := n.run, n.cut
	n.cut = cut
	if cut {
		n.heard = time.Now().Add(time.Hour) // not before it has read the floors
	}
	n.w.mu.Unlock()
	if was && !cut && r != nil {
		n.w.doing.Go(func() { n.hear(n.w.ctx, r) })
	}
}

// reserved reports a range to the peers.
func (r *simRun) reserved(tag string, held allocator.Range) {
	n, w := r.n, r.n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	n.own[tag] = max(n.own[tag], held.Last+1)
	r.knows[tag] = max(r.knows[tag], held.Last+1)
	w.highest[tag] = max(w.highest[tag], held.Last+1)
	for _, other := range w.nodes {
		if other == n || n.cut || other.cut || w.losesReports && n.random.in(10) {
			continue
		}
		delay := n.random.upTo(simPick(n.random, time.Millisecond, time.Millisecond, 50*time.Millisecond, time.Second))
		w.later(delay, func() {
			w.mu.Lock()
			to := other.run
			w.mu.Unlock()
			if to != nil {
				to.a.Reserved(tag, held)
				w.mu.Lock()
				to.knows[tag] = max(to.knows[tag], held.Last+1)
				w.mu.Unlock()
			}
		})
	}
}

// notify checks that episodes begin and end in turn.
func (r *simRun) notify(e allocator.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wrong := func(format string, args ...any) {
		if r.err == nil {
			r.err = fmt.Errorf("%s at %v: "+format, append([]any{r.name, r.n.w.now()}, args...)...)
		}
	}
	begin := func(tag, episode string) {
		if r.open[tag+" "+episode] {
			wrong("%s of %s begins twice", episode, tag)
		}
		r.open[tag+" "+episode] = true
	}
	switch e := e.(type) {
	case allocator.RefillFailed:
		begin(e.Tag, "refill_failed")
		if r.n.w.mustServe(time.Now()) {
			wrong("%+v, though store and ledger are well", e)
		}
	case allocator.Starved:
		begin(e.Tag, "starved")
	case allocator.Regressed:
		if e.Action != allocator.Refused || !r.open[e.Tag+" regressed"] { // each range in doubt is reported
			begin(e.Tag, "regressed")
		}
		r.alerts[e.Tag]++
		r.n.w.note("alert, " + string(e.Action))
		r.n.w.trace("%s alerts: %+v", r.name, e)
		switch {
		case !r.n.w.wentBack.Load():
			wrong("%+v, though the store is well", e)
		case e.Action == allocator.Refused && r.n.w.ledger != nil && !r.n.w.shared && !r.n.w.ledgerBack:
			wrong("%+v, though the ledger is well", e)
		}
	case allocator.Recovered:
		if !r.open[e.Tag+" "+e.Episode] {
			wrong("%s of %s ends and had not begun", e.Episode, e.Tag)
		}
		delete(r.open, e.Tag+" "+e.Episode)
	}
}

// checkEvents checks the events of the process; at the end no episode may be open.
func (r *simRun) checkEvents(end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		r.n.w.fail("%v", r.err)
	}
	if !end {
		return
	}
	for tag, n := range r.moved {
		if r.alerts[tag] == 0 && !r.n.w.rowDeleted { // else the tag may have left memory before the answer came
			r.n.w.fail("%s moved max_id of %s up %d times and raised no alert", r.name, tag, n)
		}
	}
	for episode := range r.open {
		r.n.w.fail("%s: the episode %s is not over", r.name, episode)
	}
}

// calls takes IDs from the generator, one request after the other, until the context is done.
func (n *simNode) calls(ctx context.Context, random *simRandom) {
	for sleep(ctx, random.upTo(n.w.callPause())) == nil {
		r := n.up()
		if r == nil {
			continue
		}
		tag, size := simPick(random, n.w.tags...), int64(1)
		switch random.n(12) {
		case 0:
			size = 1 + random.n(400)
		case 1, 2, 3, 4:
			size = 1 + random.n(20)
		}
		limited, cancel := ctx, context.CancelFunc(func() {})
		if random.in(8) {
			limited, cancel = context.WithTimeout(ctx, random.upTo(200*time.Millisecond))
		}
		r.take(limited, tag, size)
		cancel()
	}
}

// callPause is the longest pause of a caller: a long one while nothing happens.
func (w *simWorld) callPause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calm.Load() && w.calmSince.IsZero() {
		return 2 * time.Second
	}
	return w.pace
}

// mustServe reports whether a request that began then must be served.
func (w *simWorld) mustServe(begin time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gentle || !w.calmSince.IsZero() && !begin.Before(w.calmSince)
}

// take makes one request, and checks its answer.
func (r *simRun) take(ctx context.Context, tag string, size int64) {
	w := r.n.w
	begin := time.Now()
	ranges, err := r.a.Take(ctx, tag, size)
	got := int64(0)
	for _, ids := range ranges {
		got += ids.Len()
	}
	w.mu.Lock()
	current := r.n.run == r
	if err == nil && current { // else the caller of a process that has crashed has no answer
		w.handOutLocked(r, tag, begin, ranges)
	}
	w.mu.Unlock()
	w.count("IDs", got)
	well := w.mustServe(begin)
	switch {
	case err == nil && got != size:
		w.fail("%s: %d IDs were requested, %v came", r.name, size, ranges)
	case err == nil || ctx.Err() != nil || errors.Is(err, allocator.ErrClosed):
	case well:
		w.fail("%s: the request for %d IDs of %s is refused, though store and ledger are well: %v", r.name, size, tag, err)
	case errors.Is(err, allocator.ErrUnknownTag):
	case errors.Is(err, allocator.ErrTimedOut), errors.Is(err, allocator.ErrUnavailable), errors.Is(err, allocator.ErrOverloaded):
		w.note("refused")
	case errors.Is(err, allocator.ErrRegressed) && w.shared:
		w.note("refused, regressed")
	default:
		w.fail("%s: the request for %d IDs of %s: %v", r.name, size, tag, err)
	}
}

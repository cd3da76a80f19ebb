package allocator_test

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/testkit"
)

// simNode is a generator, with a folder that outlives its processes.
type simNode struct {
	w      *simWorld
	name   string
	far    bool       // from the servers
	random *simRandom // of its requests
	runs   int

	// Guarded by the world's lock.
	own    map[string]int64 // its own marks, as in the folder
	cut    time.Time        // until then, nothing reaches it and it reaches nothing
	frozen time.Time        // until then, it stands still
	run    *simRun
}

// simRun is a process of a generator.
type simRun struct {
	n       *simNode
	name    string
	a       *allocator.Allocator
	records *simRecords
	stop    func()

	// The state "away" of a generator, as the design has it. Guarded by the world's lock.
	tick, echo time.Time // of the ticker, and of the last heartbeat that came back
	shut       bool      // requests wait, until the watch has had all that was written before
	stale      bool      // after a second they wait no longer
	opened     time.Time // when they went on
}

func (n *simNode) isCut() bool    { return n.until(&n.cut) > 0 }
func (n *simNode) isFrozen() bool { return n.until(&n.frozen) > 0 }

func (n *simNode) until(t *time.Time) time.Duration {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return time.Until(*t)
}

// thaw waits while the process stands still.
func (n *simNode) thaw() {
	for d := n.until(&n.frozen); d > 0; d = n.until(&n.frozen) {
		time.Sleep(d)
	}
}

// delay is how long a message to a server takes, or back.
func (n *simNode) delay() time.Duration {
	d := n.random.upTo(3 * time.Millisecond)
	if n.far {
		d += 10 * time.Millisecond
	}
	return d
}

// current returns the process that runs.
func (n *simNode) current() *simRun {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.run
}

func (n *simNode) start() {
	w := n.w
	n.runs++
	r := &simRun{n: n, name: n.name + string(rune('a'+n.runs%26)), tick: time.Now(), echo: time.Now()}
	index := allocator.NewIndex()
	w.mu.Lock()
	for tag, end := range maps.All(n.own) {
		index.Observe(tag, end)
	}
	w.mu.Unlock()
	r.records = &simRecords{w.records.Open(), r}
	cfg := allocator.Config{
		Records: r.records, Index: index, Node: n.name, Run: r.name, Log: testkit.Quiet,
		Push: func(s allocator.Stored) { r.push(s) }, Ask: r.ask, PassOn: r.passOn,
		MaxWait: time.Second, MaxBatch: 1000, MaxStep: 200, MaxWaiting: 50,
		Refresh: 2*time.Second + n.random.upTo(2*time.Second),
	}
	if w.numbers {
		cfg.Numbers = &simNumbers{r: r}
	}
	r.a = allocator.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.a.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
	w.trace("%s starts", r.name)
	w.mu.Lock()
	n.run, n.cut, n.frozen = r, time.Time{}, time.Time{}
	w.mu.Unlock()
	w.doing.Go(func() { r.beat(ctx) })
}

// crash ends the process in the middle of everything. What it has sent may still arrive.
func (n *simNode) crash() {
	n.w.mu.Lock()
	r := n.run
	n.run, n.cut, n.frozen = nil, time.Time{}, time.Time{}
	n.w.mu.Unlock()
	n.w.trace("%s crashes", r.name)
	r.stop()
}

// push sends a record to all other generators.
func (r *simRun) push(s allocator.Stored) {
	n, w := r.n, r.n.w
	if s.Last.Run == r.name {
		w.mu.Lock()
		n.own[s.Name] = max(n.own[s.Name], s.MaxID)
		w.mu.Unlock()
	}
	for _, to := range w.others(n) {
		if !w.calm.Load() && n.random.in(50) {
			continue
		}
		w.later(n.random.upTo(5*time.Millisecond), func() { to.receive(r, func() { to.a.Push(s) }) })
	}
}

// others returns the processes of all other generators that run.
func (w *simWorld) others(n *simNode) (runs []*simRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.nodes {
		if o != n && o.run != nil {
			runs = append(runs, o.run)
		}
	}
	return runs
}

// receive does what a message from another process asks for, unless one of the two is cut off. It reports whether it
// arrived.
func (r *simRun) receive(from *simRun, do func()) bool {
	for n := r.n; ; {
		if n.isCut() || from.n.isCut() || n.current() != r {
			return false
		}
		if !n.isFrozen() {
			break
		}
		n.thaw()
		time.Sleep(n.random.upTo(20 * time.Millisecond))
	}
	do()
	return true
}

// ask asks all others what they know of a tag, and waits a second for each that is silent.
func (r *simRun) ask(ctx context.Context, tag string) (known allocator.Known, err error) {
	w := r.n.w
	others := w.others(r.n)
	silent := len(others) < len(w.nodes)-1 // one is not even heard
	for _, o := range others {
		sleep(ctx, r.n.random.upTo(5*time.Millisecond))
		if o.n.isFrozen() || !o.receive(r, func() { known = known.Merge(o.a.Known(tag)) }) {
			silent = true
			w.note("silent")
			sleep(ctx, time.Second)
			if r.records.Err() != nil && !w.numbers {
				return known, allocator.ErrTagsLost
			}
		}
	}
	w.mu.Lock()
	w.repeats = w.repeats || w.forgotten && silent
	w.mu.Unlock()
	return known, ctx.Err()
}

// passOn lets another generator claim IDs of a strict tag.
func (r *simRun) passOn(ctx context.Context, run, tag string, size int64) (ids allocator.Range, err error) {
	err = errSimLost
	for _, o := range r.n.w.others(r.n) {
		if o.name != run || o.n.isFrozen() {
			continue
		}
		sleep(ctx, r.n.random.upTo(5*time.Millisecond))
		o.receive(r, func() {
			var waiter *allocator.Later
			if waiter, err = o.a.RequestForPeer(tag, size); err == nil {
				var ranges []allocator.Range
				if ranges, err = waiter.Wait(ctx); err == nil {
					ids = ranges[0]
				}
			}
		})
		if r.n.thaw(); o.n.isCut() || r.n.isCut() {
			err = errSimLost
		}
		if err == nil {
			r.n.w.note("passed on")
		}
	}
	return ids, err
}

// beat is the ticker, and the heartbeats that come back.
func (r *simRun) beat(ctx context.Context) {
	n, w := r.n, r.n.w
	for i := 0; sleep(ctx, 200*time.Millisecond) == nil; i++ {
		n.thaw()
		r.isAway()
		w.mu.Lock()
		r.tick = time.Now()
		w.mu.Unlock()
		if i%5 == 0 && !n.isCut() {
			sent := time.Now()
			w.later(2*time.Millisecond, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				if now := time.Now(); now.After(n.cut) && now.After(n.frozen) {
					r.echo = sent
				}
			})
		}
	}
}

// isAway reports whether requests must wait. The first one that finds it so lets the generator come back.
func (r *simRun) isAway() bool {
	w := r.n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if !r.shut && !r.stale && (time.Since(r.echo) > 2*time.Second || time.Since(r.tick) > time.Second) {
		r.shut = true
		w.happened["away"]++
		w.doing.Go(r.back)
	}
	return r.shut
}

// back opens the gate when the watch has had all that was written before, or after a second.
func (r *simRun) back() {
	w := r.n.w
	for begun := time.Now(); r.n.current() == r; {
		began := time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, 600*time.Millisecond)
		err := r.records.Sync(ctx)
		cancel()
		w.mu.Lock()
		now := time.Now()
		switch {
		case err == nil:
			r.shut, r.stale, r.tick, r.echo, r.opened = false, false, now, now, now
			for _, f := range w.floors {
				if !f.at.After(began) {
					delete(f.exempt, r.name)
				}
			}
			w.mu.Unlock()
			return
		case !r.stale && now.Sub(begun) > time.Second:
			r.shut, r.stale = false, true
			w.happened["stale"]++
		}
		w.mu.Unlock()
		sleep(w.ctx, 20*time.Millisecond)
		if w.ctx.Err() != nil {
			return
		}
	}
}

// calls takes IDs from the generator, one request after the other, until the context is done.
func (n *simNode) calls(ctx context.Context, random *simRandom, tag string, pause time.Duration) {
	for sleep(ctx, random.upTo(pause)) == nil {
		size := 1 + random.n(8)
		if random.in(8) {
			size = 1 + random.n(400)
		}
		n.thaw()
		if r := n.current(); r != nil {
			r.take(ctx, tag, size)
		}
	}
}

// take makes one request, and checks its answer.
func (r *simRun) take(ctx context.Context, tag string, size int64) error {
	n, w := r.n, r.n.w
	if tag != simStrict && r.isAway() {
		return errSimLost
	}
	called := time.Now()
	ranges, err := r.a.Take(ctx, tag, size)
	n.thaw()
	if n.current() != r || tag != simStrict && r.isAway() {
		return errSimLost // what waited while the generator was away gets no answer
	}
	got := int64(0)
	for _, ids := range ranges {
		got += ids.Len()
	}
	if err == nil && got != size {
		w.fail("%s: %d IDs were requested, %v came", r.name, size, ranges)
	}
	if errors.Is(err, idspace.ErrBadValue) || errors.Is(err, allocator.ErrExhausted) {
		w.fail("%s: the request for %d IDs of %s: %v", r.name, size, tag, err)
	}
	if err != nil {
		w.note("refused")
		return err
	}
	w.handOut(r, tag, ranges)
	if tag == simStrict {
		w.strict.Add(called, time.Now(), ranges...)
	}
	return nil
}

package allocator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Allocator hands out IDs of any number of tags. Its methods are safe for
// concurrent use.
//
// The goroutines that it starts are its refills, at most one a tag that is in
// use, and in [Allocator.Run] those that load ahead, note what is used and evict what
// is not; Run ends them.
type Allocator struct {
	cfg       Config
	recent    recent
	waiting   atomic.Int64  // requests in the queues of all tags
	failures  atomic.Int64  // attempts at a refill that failed
	strange   atomic.Int64  // tags that were never loaded and whose trouble was told
	unmarked  atomic.Bool   // the last mark could not be written
	refills   atomic.Int64  // that succeeded
	regressed atomic.Int64  // tags of which the store went backwards
	slots     chan struct{} // taken for each write to the store
	locked    chan struct{} // taken before, where the record was locked

	mu      sync.RWMutex
	buffers map[string]*buffer
	closed  bool

	troubles troubles

	ctx    context.Context // of all refills
	cancel context.CancelFunc
	wg     sync.WaitGroup // refills, and what Run starts; requests add to it under mu while not closed
}

// New returns an allocator that serves from now on.
func New(cfg Config) *Allocator {
	cfg = cfg.withDefaults()
	a := &Allocator{
		cfg:     cfg,
		recent:  newRecent(cfg.Recent),
		slots:   make(chan struct{}, maxRefills),
		locked:  make(chan struct{}, maxLocked),
		buffers: make(map[string]*buffer),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Run follows the store's changes until the context is done; beside it, it
// reserves a segment for each tag that was used in the last day, and drops from memory
// those that were not used for a day. Then it refuses
// the requests that still wait, with ErrClosed, and returns when all refills
// have ended. IDs in memory are served also afterwards. A disk that hangs delays it
// for a few seconds at most, and keeps one goroutine for each of the two files.
func (a *Allocator) Run(ctx context.Context) {
	a.wg.Go(a.keepMemory)
	told := "" // a store that is away is logged once
	for ctx.Err() == nil {
		err := a.cfg.Store.Watch(ctx, a.Apply)
		if ctx.Err() == nil {
			if told != err.Error() {
				told = err.Error()
				a.cfg.Log.Warn("the watch on the tags broke; watching again", "error", err)
			}
			pause(ctx, lastPause, nil)
		}
	}
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	buffers := a.all() // none is added any more
	a.cancel()
	for _, b := range buffers {
		b.mu.Lock()
		b.refuseLocked(ErrClosed)
		b.mu.Unlock()
	}
	a.wg.Wait()
	a.sweep()
}

// Take returns n IDs of tag in the fewest possible ranges, all or none, and
// waits for them if it must. Errors: ErrBadTag, ErrBadCount, ErrBatchTooLarge,
// ErrUnknownTag, ErrUnavailable, ErrRegressed, ErrExhausted, ErrOverloaded,
// ErrTimedOut, ErrClosed, and that of the context.
func (a *Allocator) Take(ctx context.Context, tag string, n int64) ([]Range, error) {
	// Small enough to be inlined, so that room for one range is on the stack of
	// a caller that does not keep it.
	return a.take(ctx, make([]Range, 0, 1), tag, n)
}

func (a *Allocator) take(ctx context.Context, dst []Range, tag string, n int64) ([]Range, error) {
	ranges, waiter, err := a.Request(dst, tag, n)
	if waiter == nil {
		return ranges, err
	}
	return waiter.Wait(ctx)
}

// Request takes n IDs of tag from memory and adds their ranges to dst. If
// memory has too few, it returns at once a waiter whose Wait will have them:
// this is for callers that must not block. It does not allocate where dst has
// room. The errors are those of [Allocator.Take].
func (a *Allocator) Request(dst []Range, tag string, n int64) ([]Range, *Waiter, error) {
	if n < 1 {
		return nil, nil, fmt.Errorf("%w: %d is not at least 1", ErrBadCount, n)
	}
	if n > a.cfg.MaxBatch {
		return nil, nil, fmt.Errorf("%w: %d IDs were asked for, the most is %d", ErrBatchTooLarge, n, a.cfg.MaxBatch)
	}
	for {
		b, err := a.buffer(tag)
		if err != nil {
			return nil, nil, err
		}
		b.mu.Lock()
		if b.gone {
			b.mu.Unlock()
			continue
		}
		if b.left < n {
			waiter, err := a.queueAndUnlock(b, n)
			return nil, waiter, err
		}
		dst = b.takeLocked(dst, n)
		if b.left == 0 {
			a.tallyLocked(b)
		}
		refill := !b.loading && len(b.segments) < 2 && b.idleLocked()
		if refill {
			refill = a.claimLocked(b)
		}
		b.mu.Unlock()
		if refill {
			a.startRefill(b)
		}
		return dst, nil, nil
	}
}

// queueAndUnlock puts a request for n IDs into the queue of b, and sees that a
// refill is under way.
func (a *Allocator) queueAndUnlock(b *buffer, n int64) (*Waiter, error) {
	now := time.Now()
	var err error
	switch {
	case a.ctx.Err() != nil:
		err = ErrClosed
	case b.regressed != nil:
		err = b.regressed
	case b.exhausted:
		err = ErrExhausted
	case b.failure != nil && now.Sub(b.failure.since) >= a.cfg.MaxWait:
		// Others have waited that long in vain: this one learns it at once.
		err = a.shortLocked(b, now, ErrTimedOut, b.waiters.n+1)
	case a.waiting.Add(1) > a.cfg.MaxWaiting:
		a.waiting.Add(-1)
		err = a.shortLocked(b, now, ErrOverloaded, b.waiters.n+1)
	}
	if err != nil {
		refill := a.claimLocked(b)
		unused := b.stepper.base == 0 && !b.loading
		b.mu.Unlock()
		switch {
		case refill:
			a.startRefill(b)
		case unused: // a name that nobody may have given to a tag
			a.forget(b)
		}
		return nil, err
	}
	w := &Waiter{allocator: a, buffer: b, n: n, missing: n, deadline: now.Add(a.cfg.MaxWait), done: make(chan struct{})}
	b.waiters.push(w)
	b.missing += n
	refill := a.claimLocked(b)
	b.mu.Unlock()
	if refill {
		a.startRefill(b)
	}
	return w, nil
}

// buffer returns the buffer of tag, a new one if the tag has none yet: whether
// the tag exists is for the store to say, when the buffer is first filled.
func (a *Allocator) buffer(tag string) (*buffer, error) {
	a.mu.RLock()
	b := a.buffers[tag]
	a.mu.RUnlock()
	if b != nil {
		return b, nil
	}
	if err := CheckTag(tag); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, ErrClosed
	}
	if b = a.buffers[tag]; b == nil {
		b = &buffer{tag: strings.Clone(tag)} // not the whole subject that it is a part of
		a.buffers[b.tag] = b
	}
	return b, nil
}

// all returns every buffer.
func (a *Allocator) all() []*buffer {
	a.mu.RLock()
	defer a.mu.RUnlock()
	all := make([]*buffer, 0, len(a.buffers))
	for _, b := range a.buffers {
		all = append(all, b)
	}
	return all
}

// drop takes b out of the map, with all that is in it, and refuses its waiters.
func (a *Allocator) drop(b *buffer, reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuseLocked(reason)
	a.dropLocked(b)
}

// dropLocked needs the locks of a and b. b must be in the map: if it is gone,
// another buffer may have its place.
func (a *Allocator) dropLocked(b *buffer) {
	b.gone = true
	delete(a.buffers, b.tag)
	a.recoveredLocked(b)
}

// Apply takes in a tag's record as the store has it: an operator's max_id, a
// new step, a deletion. When it returns, no ID below the record's Floor is
// handed out. [Allocator.Run] calls it with what it sees in the store.
func (a *Allocator) Apply(tag Tag) {
	if tag.Deleted {
		a.recent.forget(tag.Name)
	}
	floor := tag.Below() // the store knows whether a deleted tag was created again since
	if floor > 0 {
		a.cfg.Marks.Observe(tag.Name, floor) // also where nothing is in memory
	}
	b := a.lockedBuffer(tag.Name)
	if b == nil {
		return
	}
	b.raiseFloorLocked(floor)
	if tag.Deleted && floor == 0 { // nobody noted how far it was
		b.recallLocked()
	}
	poke := b.regressed != nil
	if tag.Deleted {
		poke = true
	} else {
		b.forgiveLocked(tag)
		b.stepper.rebase(tag.Step)
	}
	if poke {
		b.pokeLocked()
	}
	a.tallyLocked(b)
	b.mu.Unlock()
	if tag.Deleted {
		a.forget(b)
	}
}

// Raise drops the IDs of tag below floor, as [Allocator.Apply] does.
func (a *Allocator) Raise(tag string, floor int64) {
	a.cfg.Marks.Observe(tag, floor) // even if nothing of the tag is in memory
	a.mu.RLock()
	b := a.buffers[tag]
	a.mu.RUnlock()
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.raiseFloorLocked(floor)
	a.tallyLocked(b)
}

// forget drops b unless somebody has begun to use it again, or has dropped it.
func (a *Allocator) forget(b *buffer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.gone && !b.loading && b.left == 0 {
		a.dropLocked(b)
	}
}

// Failures is how many attempts at a refill have failed.
func (a *Allocator) Failures() int64 { return a.failures.Load() }

// Observe notes that another generator reserved the IDs of tag below end.
func (a *Allocator) Observe(tag string, end int64) { a.cfg.Marks.Observe(tag, end) }

// Seen is the end of all ranges of tag that this generator knows of, or the
// max_id that it saw in the store, if that is above.
func (a *Allocator) Seen(tag string) int64 {
	floor := int64(0)
	if b := a.lockedBuffer(tag); b != nil {
		floor = b.floor
		b.mu.Unlock()
	}
	return max(floor, a.cfg.Marks.End(tag)) // read last, because an evicted tag leaves its floor in the marks
}

// lockedBuffer returns the buffer of tag, locked; nil if there is none in memory.
func (a *Allocator) lockedBuffer(tag string) *buffer {
	for {
		a.mu.RLock()
		b := a.buffers[tag]
		a.mu.RUnlock()
		if b == nil {
			return nil
		}
		b.mu.Lock()
		if !b.gone { // if it is gone, another buffer may have its place
			return b
		}
		b.mu.Unlock()
	}
}

package allocator

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Allocator hands out IDs of any number of tags. Its methods are safe for
// concurrent use.
//
// It starts these goroutines: its refills, at most one for each tag, and in
// [Allocator.Run] those that load tags ahead, save which tags are used, and evict idle
// ones. Run waits for all of them.
type Allocator struct {
	cfg           Config
	recent        recent
	sharers       atomic.Int64  // generators that share quotas, this one included
	waiting       atomic.Int64  // requests in the queues of all tags
	failures      atomic.Int64  // attempts at a refill that failed
	unknownAlerts atomic.Int64  // tags that were never loaded and raised an alert
	marksFail     atomic.Bool   // the last mark could not be written
	refills       atomic.Int64  // that succeeded
	regressed     atomic.Int64  // tags of which the store went backwards
	slots         chan struct{} // one for each write to the store, but for those of claimSlots
	claimSlots    chan struct{} // one for each write of a tag that is known to be strict
	lockedSlots   chan struct{} // one more for a tag whose record was locked, taken first

	mu      sync.RWMutex
	buffers map[string]*buffer

	strictNames sync.Map // of tags that were in memory: an order is for life

	troubles troubles

	ctx    context.Context // of all refills
	cancel context.CancelFunc
	wg     sync.WaitGroup // refills, and what Run starts
}

// New returns an allocator that serves from now on.
func New(cfg Config) *Allocator {
	cfg = cfg.withDefaults()
	a := &Allocator{
		cfg:         cfg,
		recent:      newRecent(cfg.Recent),
		slots:       make(chan struct{}, maxRefills),
		claimSlots:  make(chan struct{}, maxClaims),
		lockedSlots: make(chan struct{}, maxLocked),
		buffers:     make(map[string]*buffer),
	}
	a.sharers.Store(1)
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Run follows the store's changes until the context is done. Meanwhile it reserves a
// segment for each tag that was used in the last day, and evicts tags that were idle for
// a day. Then it refuses waiting requests with ErrClosed, and returns when all refills
// have ended. IDs in memory are served also afterwards. A disk that hangs delays the
// return by a few seconds, and keeps one goroutine for each of the two files.
func (a *Allocator) Run(ctx context.Context) {
	a.wg.Go(a.keepMemory)
	logged := "" // an outage is logged once
	for ctx.Err() == nil {
		err := a.cfg.Store.Watch(ctx, a.Apply)
		if ctx.Err() == nil {
			if logged != err.Error() {
				logged = err.Error()
				a.cfg.Log.Warn("the watch on the tags broke; watching again", "error", err)
			}
			pause(ctx, lastPause, nil)
		}
	}
	a.cancel() // from now on no buffer is added
	for _, b := range a.all() {
		b.mu.Lock() // from now on refillLocked starts nothing: all are added to wg before the Wait
		b.refuseLocked(ErrClosed)
		b.mu.Unlock()
	}
	a.wg.Wait()
	a.sweep()
}

// Take returns n IDs of tag in the fewest possible ranges, all or none, and
// waits for them if it must. Errors: ErrBadTag, ErrBadCount, ErrBatchTooLarge,
// ErrUnknownTag, ErrPaused, ErrQuota, ErrUnavailable, ErrRegressed, ErrExhausted, ErrOverloaded,
// ErrTimedOut, ErrClosed, and that of the context.
func (a *Allocator) Take(ctx context.Context, tag string, n int64) ([]Range, error) {
	// Small enough to be inlined, so that room for one range is on the stack of
	// a caller that does not keep it.
	return a.take(ctx, make([]Range, 0, 1), tag, n)
}

func (a *Allocator) take(ctx context.Context, dst []Range, tag string, n int64) ([]Range, error) {
	ranges, waiter, err := a.Request(dst, tag, n)
	if waiter != nil {
		ranges, err = waiter.Wait(ctx)
	}
	if err != nil {
		a.Refused(tag, err)
	}
	return ranges, err
}

// Request takes n IDs of tag from memory and adds their ranges to dst. If
// memory has too few, it returns at once a waiter whose Wait returns them. Use it
// where the caller must not block. It does not allocate where dst has room. The errors
// are those of [Allocator.Take]. Report the one that the caller gets with [Allocator.Refused].
func (a *Allocator) Request(dst []Range, tag string, n int64) ([]Range, *Waiter, error) {
	if n < 1 {
		return nil, nil, fmt.Errorf("%w: %d is not at least 1", ErrBadCount, n)
	}
	if n > a.cfg.MaxBatch {
		return nil, nil, fmt.Errorf("%w: %d IDs were requested, the limit is %d", ErrBatchTooLarge, n, a.cfg.MaxBatch)
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
		if err := a.admitLocked(b, n); err != nil {
			b.mu.Unlock()
			return nil, nil, err
		}
		if b.left < n {
			waiter, err := a.queueAndUnlock(b, n, false)
			return nil, waiter, err
		}
		dst = b.takeLocked(dst, n)
		b.chargeLocked(n)
		if b.left == 0 {
			a.recountLocked(b)
		}
		if !b.loading && len(b.segments) < 2 && b.nextDueLocked() {
			a.refillLocked(b)
		}
		b.mu.Unlock()
		return dst, nil, nil
	}
}

// queueAndUnlock puts a request for n IDs into the queue of b, and makes sure that a
// refill is under way.
func (a *Allocator) queueAndUnlock(b *buffer, n int64, fromPeer bool) (*Waiter, error) {
	now := time.Now()
	var err error
	switch {
	case a.ctx.Err() != nil:
		err = ErrClosed
	case b.rulesLocked().Paused:
		err = ErrPaused
	case b.regressed != nil:
		err = b.regressed
	case b.exhausted:
		err = b.exhaustedLocked(n)
	case b.failure != nil && now.Sub(b.failure.since) >= a.cfg.MaxWait:
		// Others have waited that long in vain: this one is refused at once.
		err = b.dryLocked(now, ErrTimedOut, b.waiters.n+1)
	case a.waiting.Add(1) > a.cfg.MaxWaiting:
		a.waiting.Add(-1)
		err = b.dryLocked(now, ErrOverloaded, b.waiters.n+1)
	}
	if err != nil {
		a.refillLocked(b)
		unused := b.stepper.base == 0 && !b.loading && !b.exhausted // there may be no such tag
		b.mu.Unlock()
		if unused {
			a.forget(b)
		}
		return nil, err
	}
	w := &Waiter{allocator: a, buffer: b, n: n, missing: n, fromPeer: fromPeer,
		slowAt: now.Add(b.slowAfterLocked()), deadline: now.Add(a.cfg.MaxWait), done: make(chan struct{})}
	b.waiters.push(w)
	if !fromPeer { // the other generator has taken them from its own share
		b.chargeLocked(n)
	}
	b.waiters.missing += n
	a.refillLocked(b)
	b.mu.Unlock()
	return w, nil
}

// buffer returns the buffer of tag, a new one if the tag has none. Only the first
// refill shows whether the tag exists.
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
	if a.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if b = a.buffers[tag]; b == nil {
		b = &buffer{tag: strings.Clone(tag)} // not the whole subject that it is a part of
		a.buffers[b.tag] = b
	}
	return b, nil
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
		if !b.gone { // if it is gone, the tag may have another buffer
			return b
		}
		b.mu.Unlock()
	}
}

// all returns every buffer.
func (a *Allocator) all() []*buffer {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.AppendSeq(make([]*buffer, 0, len(a.buffers)), maps.Values(a.buffers))
}

// dropIf takes b out of memory, with all that is in it, if the condition holds. It calls
// the condition with the locks of a and b.
func (a *Allocator) dropIf(b *buffer, condition func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || !condition() { // if it is gone, the tag may have another buffer
		return
	}
	if b.floor > 0 {
		a.cfg.Marks.Observe(b.tag, b.floor) // before b is gone: Seen reads the buffer, then the marks
	}
	b.gone = true
	delete(a.buffers, b.tag)
	a.recoveredLocked(b)
}

// drop takes b out of memory and refuses its waiters.
func (a *Allocator) drop(b *buffer, reason error) {
	a.dropIf(b, func() bool { b.refuseLocked(reason); return true })
}

// forget drops b if it is empty and no refill owns it.
func (a *Allocator) forget(b *buffer) {
	a.dropIf(b, func() bool { return !b.loading && b.left == 0 })
}

// Apply takes in a tag's record as the store has it: an operator's max_id, a
// new step, a deletion. When it returns, no ID below the record's Floor is
// handed out. [Allocator.Run] calls it with what it sees in the store.
func (a *Allocator) Apply(tag Tag) {
	if tag.Deleted {
		a.recent.forget(tag.Name)
	}
	if tag.Order == Strict { // no generator reports its claims: a record that is ever found below this went backwards
		a.cfg.Marks.Observe(tag.Name, tag.MaxID)
	}
	floor := tag.Below() // the store knows whether a deleted tag was created again since
	b := a.raise(tag.Name, floor)
	if b == nil {
		return
	}
	if tag.Deleted || b.regressed != nil {
		b.wakeLocked()
	}
	if !tag.Deleted {
		a.governLocked(b, tag.Rules)
		b.clearRegressedLocked(tag)
		if tag.Order == Strict {
			a.becomeStrictLocked(b)
		} else {
			b.stepper.rebase(tag.Step)
		}
	}
	a.recountLocked(b)
	b.mu.Unlock()
	switch {
	case tag.Deleted && floor == 0: // removed by hand: callers get ErrUnknownTag at once
		a.drop(b, ErrUnknownTag)
	case tag.Deleted:
		a.forget(b)
	}
}

// Raise drops the IDs of tag below floor and applies its rules, as [Allocator.Apply] does.
func (a *Allocator) Raise(tag string, floor int64, rules Rules) {
	if b := a.raise(tag, floor); b != nil {
		a.governLocked(b, rules)
		a.recountLocked(b)
		b.mu.Unlock()
	}
}

// raise marks the IDs of tag below floor as used, and drops them from memory. It returns
// the tag's buffer, locked; nil if there is none.
func (a *Allocator) raise(tag string, floor int64) *buffer {
	if floor > 0 {
		a.cfg.Marks.Observe(tag, floor) // also if nothing of the tag is in memory
	}
	b := a.lockedBuffer(tag)
	if b != nil {
		b.raiseFloorLocked(floor)
	}
	return b
}

// Failures is how many attempts at a refill have failed.
func (a *Allocator) Failures() int64 { return a.failures.Load() }

// Reserved notes that another generator has reserved a range. If this one holds the same IDs, the
// store went backwards unnoticed. Then this generator drops what is left of them, and Config.Reserved
// reports its own range, so that the other one drops the rest too.
func (a *Allocator) Reserved(tag string, r Range) {
	a.cfg.Marks.Observe(tag, r.Last+1)
	b := a.lockedBuffer(tag)
	if b == nil {
		return
	}
	if b.loading && len(b.heard) < maxHeard {
		b.heard = append(b.heard, r) // the store may be about to return the same
	}
	held := b.discardLocked(r)
	for _, h := range held {
		a.regressedLocked(b, Regressed{Tag: tag, Got: r.First, Seen: h.Last + 1, Action: Refused,
			InDoubt: Range{max(h.First, r.First), min(h.Last, r.Last)}})
	}
	if len(held) > 0 {
		a.recountLocked(b)
		a.refillLocked(b) // for the requests that wait
	}
	b.mu.Unlock()
	for _, h := range held {
		a.cfg.Log.Error("two generators reserved the same IDs, which may come twice: the rest is dropped",
			"tag", tag, "first", h.First, "last", h.Last)
		a.cfg.Reserved(tag, h)
	}
}

// Has returns how many IDs of a tag a request could get at once, for the requests of other generators. Of a strict tag it is the largest
// int64 while its claims succeed. refills says whether this generator can reserve more of the tag soon, for all that it knows.
func (a *Allocator) Has(tag string) (left int64, refills bool) {
	b := a.lockedBuffer(tag)
	if b == nil {
		return 0, a.Failing().Store == nil
	}
	now := time.Now()
	if b.rulesLocked().Paused {
		b.mu.Unlock()
		return 0, false
	}
	refills = b.failure == nil && b.regressed == nil && !b.exhausted
	if w := b.waiters.first; w != nil && now.After(w.slowAt) { // its own requests wait in vain
		refills = false
	}
	if s := b.strict; s != nil && (s.passing || now.Before(s.viaUntil)) { // [Allocator.RequestForPeer] would refuse
		refills = false
	}
	left = b.left // also while a larger request waits: others do not wait for it
	if b.strict != nil && refills && b.strict.claims > 0 {
		left = math.MaxInt64
	}
	b.mu.Unlock()
	return left, refills && a.Failing().Store == nil
}

// Floor is the ID below which none of a tag may be handed out, as far as memory knows; 0: all may. What is in memory
// of a strict tag is the end of its last claim.
func (a *Allocator) Floor(tag string) int64 {
	b := a.lockedBuffer(tag)
	if b == nil {
		return 0
	}
	defer b.mu.Unlock()
	return b.floor
}

// Rules are those of a tag, as far as memory knows.
func (a *Allocator) Rules(tag string) Rules {
	b := a.lockedBuffer(tag)
	if b == nil {
		return Rules{}
	}
	defer b.mu.Unlock()
	return b.rulesLocked()
}

// Seen is the end of all ranges of tag that this generator knows of, or the
// max_id that it saw in the store, if that is above.
func (a *Allocator) Seen(tag string) int64 {
	floor := a.Floor(tag)
	return max(floor, a.cfg.Marks.End(tag)) // read last, because an evicted tag leaves its floor in the marks
}

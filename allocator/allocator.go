package allocator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Allocator hands out IDs of any number of tags. Its methods are safe for concurrent use.
//
// It starts these goroutines: its refills, at most one for each tag, and in [Allocator.Run] those
// that load tags ahead, evict idle ones, write marks, and raise records and rows that were set
// back. Run waits for all of them. Its parts own what they know; a part uses those before it:
//
//	memory, alarms, quotas   the buffers; which tags fail; the rules in force
//	└── refills              IDs for memory, by claims
//	    ├── strictClaims     IDs for the requests that wait
//	    └── follower         records of others; overlaps, and what was set back
//	        ├── handover     IDs to and from other generators
//	        ├── poll         rows of a database
//	        └── admin        what operators do
type Allocator struct {
	*memory
	*alarms
	*quotas
	*refills
	*strictClaims
	*follower
	handover
	admin
	cfg     Config
	rows    poll
	waiting atomic.Int64       // requests in the queues of all tags
	cancel  context.CancelFunc // of memory.ctx
}

// New returns an allocator that serves from now on.
func New(cfg Config) *Allocator {
	cfg = cfg.withDefaults()
	a := &Allocator{cfg: cfg, alarms: &alarms{notify: cfg.Notify, index: cfg.Index}}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.memory = newMemory(ctx, &a.cfg, a.alarms)
	a.quotas = newQuotas(a.alarms)
	claims := &claims{cfg: &a.cfg, known: a.Forbids}
	a.refills = &refills{
		memory: a.memory, alarms: a.alarms, quotas: a.quotas, claims: claims, reserveIDs: claims.reserve,
		slots: make(chan struct{}, maxRefills), lockedSlots: make(chan struct{}, maxLocked),
	}
	a.strictClaims = &strictClaims{a.refills, make(chan struct{}, maxClaims)}
	a.follower = &follower{refills: a.refills, heals: newHeals()}
	a.refills.strict, a.refills.follower = a.strictClaims, a.follower
	a.handover.follower, a.rows.follower, a.admin.follower = a.follower, a.follower, a.follower
	return a
}

// Run follows the records until the context is done. Meanwhile it reserves a segment for each tag
// that was used in the last day, evicts tags that were idle for one or two days, raises records
// that were set back, and keeps the rows of a database and the records equal. Then it refuses
// waiting requests with ErrClosed, and returns when all refills have ended. IDs in memory are
// served also afterwards. A disk that hangs delays the return by a few seconds, and keeps one
// goroutine.
func (a *Allocator) Run(ctx context.Context) {
	a.wg.Go(a.keepMemory)
	a.wg.Go(a.keepHealed)
	a.wg.Go(a.keepMarks)
	if a.cfg.Numbers != nil {
		a.wg.Go(a.rows.run)
	}
	logged := "" // an outage is logged once
	for ctx.Err() == nil {
		err := a.cfg.Records.Watch(ctx, func(u Update) { a.reconcile(u, false) })
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
}

// keepMarks writes what was heard of other generators' claims into the file of the marks, until the
// allocator is closed.
func (a *Allocator) keepMarks() {
	for pause(a.ctx, flushEvery, nil) {
		_ = a.cfg.Index.flush() // the next one tries again, and own claims report the fault
	}
}

// Take returns n IDs of tag in the fewest possible ranges, all or none, and
// waits for them if it must. Errors: idspace.ErrBadTag, ErrBadCount, ErrBatchTooLarge,
// ErrUnknownTag, ErrPaused, ErrQuota, ErrUnavailable, ErrExhausted, ErrOverloaded,
// ErrTimedOut, ErrClosed, and that of the context.
func (a *Allocator) Take(ctx context.Context, tag string, n int64) ([]Range, error) {
	// Small enough to be inlined, so that room for one range is on the stack of
	// a caller that does not keep it.
	return a.take(ctx, make([]Range, 0, 1), tag, n)
}

func (a *Allocator) take(ctx context.Context, dst []Range, tag string, n int64) ([]Range, error) {
	ranges, later, err := a.Request(dst, tag, n)
	if later != nil {
		ranges, err = later.Wait(ctx)
	}
	if err != nil {
		a.Refused(tag, err)
	}
	return ranges, err
}

// Request takes n IDs of tag from memory and adds their ranges to dst. If memory has too few, it
// returns at once a Later that gets them. Use it where the caller must not block. It does not
// allocate where dst has room. The errors are those of [Allocator.Take]. Report the one that the
// caller gets with [Allocator.Refused].
func (a *Allocator) Request(dst []Range, tag string, n int64) ([]Range, *Later, error) {
	if n < 1 {
		return nil, nil, fmt.Errorf("%w: %d is not at least 1", ErrBadCount, n)
	}
	if n > a.cfg.MaxBatch {
		return nil, nil, fmt.Errorf("%w: %d IDs were requested, the limit is %d", ErrBatchTooLarge, n, a.cfg.MaxBatch)
	}
	b, err := a.lockedOrNew(tag)
	if err != nil {
		return nil, nil, err
	}
	if err := a.admitLocked(b, n); err != nil {
		b.mu.Unlock()
		return nil, nil, err
	}
	if b.leftLocked() < n || b.saved {
		later, err := a.queueAndUnlock(b, n, false)
		return nil, later, err
	}
	dst = b.takeLocked(dst, n)
	b.chargeLocked(n)
	if b.leftLocked() == 0 {
		a.recountLocked(b)
	}
	if b.wake == nil && len(b.segments) < 2 && b.nextDueLocked() {
		a.refillLocked(b)
	}
	b.mu.Unlock()
	return dst, nil, nil
}

// queueAndUnlock puts a request for n IDs into the queue of b, and makes sure that a
// refill is under way.
func (a *Allocator) queueAndUnlock(b *buffer, n int64, fromPeer bool) (*Later, error) {
	now := time.Now()
	var err error
	switch {
	case a.ctx.Err() != nil:
		err = ErrClosed
	case b.rulesLocked().Paused:
		err = ErrPaused
	case b.exhausted:
		err = b.exhaustedLocked(n)
	case b.failure != nil && now.Sub(b.failure.since) >= a.cfg.MaxWait:
		// Others have waited that long in vain: this one is refused at once.
		err = b.dryLocked(now, ErrTimedOut, b.waiters.Len()+1)
	case a.waiting.Load() >= a.cfg.MaxWaiting:
		err = b.dryLocked(now, ErrOverloaded, b.waiters.Len()+1)
	}
	if err != nil {
		a.refillLocked(b)
		unused := b.stepper.base == 0 && b.wake == nil && !b.exhausted // there may be no such tag
		b.mu.Unlock()
		if unused {
			a.forget(b)
		}
		return nil, err
	}
	w := &waiter{allocator: a, buffer: b, n: n, fromPeer: fromPeer}
	w.Begin(&b.mu, now.Add(b.slowAfterLocked()), now.Add(a.cfg.MaxWait), w.gaveUp)
	b.waiters.push(w)
	a.waiting.Add(1)
	if !fromPeer { // the other generator has taken them from its own share
		b.chargeLocked(n)
	}
	a.refillLocked(b)
	b.mu.Unlock()
	return &w.Later, nil
}

// dropIf takes b out of memory, with all that is in it, if the condition holds. It calls
// the condition with the locks of its shard and of b.
func (m *memory) dropIf(b *buffer, condition func() bool) {
	s := m.shard(b.tag)
	s.mu.Lock()
	defer s.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || !condition() { // if it is gone, the tag may have another buffer
		return
	}
	if b.floor > 0 {
		m.cfg.Index.Observe(b.tag, b.floor) // before b is gone: Seen reads the buffer, then the marks
	}
	b.gone = true
	delete(s.buffers, b.tag)
	m.alarms.recoveredLocked(b)
}

// drop takes b out of memory and refuses its waiters.
func (m *memory) drop(b *buffer, reason error) {
	m.dropIf(b, func() bool { b.refuseLocked(reason); return true })
}

// forget drops b if it is empty and no refill owns it.
func (m *memory) forget(b *buffer) {
	m.dropIf(b, func() bool { return b.wake == nil && b.leftLocked() == 0 })
}

// Failures is how many attempts at a refill have failed.
func (a *refills) Failures() int64 { return a.failures.Load() }

// Has returns how many IDs of a tag a request could get at once, for the requests of other
// generators: none of a strict tag. refills says whether this generator can reserve more of the tag
// soon, for all that it knows.
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
	refills = b.failure == nil && !b.exhausted
	if w := b.waiters.first(); w != nil && now.After(w.slowAt) { // its own requests wait in vain
		refills = false
	}
	if s := b.strict; s != nil && now.Before(s.viaUntil) { // [Allocator.RequestForPeer] would refuse
		refills = false
	}
	if !b.saved {
		left = b.leftLocked() // also while a larger request waits: others do not wait for it
	}
	b.mu.Unlock()
	return left, refills && a.Failing().Store == nil
}

// Seen is the end of all ranges of tag that this generator knows of, or the
// max_id that it saw in the store, if that is above.
func (m *memory) Seen(tag string) int64 {
	floor, _ := m.Forbids(tag)
	return max(floor, m.cfg.Index.End(tag)) // read last, because an evicted tag leaves its floor in the marks
}

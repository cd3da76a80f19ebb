package allocator

import (
	"container/list"
	"errors"
	"sync"
	"time"
)

// buffer holds what one tag has in memory: the segment that is being handed
// out, the next one, and the requests that wait for more.
//
// All fields but tag are guarded by mu, which is never held across I/O or a
// wait. Events are told under it, so that they come in their order. A tag that
// idles should cost little: what only a refill needs is made for it.
type buffer struct {
	tag string
	mu  sync.Mutex

	gone      bool          // no longer in the allocator's map: look the tag up again
	loading   bool          // a refill owns the tag
	exhausted bool          // the store has no IDs left
	starved   bool          // that a request was refused since the last refill was told
	strange   bool          // it counts as one of maxStrange
	stocked   bool          // troubles counts it as a tag that has IDs
	idle      uint16        // sweeps in a row that saw no use
	recalls   uint32        // how often all that was reserved was given up
	wake      chan struct{} // pokes that refill out of its pause; holds one; the refill reads it unlocked

	segments []segment // [0] is being handed out
	left     int64     // IDs in segments
	taken    int64     // IDs handed out so far
	swept    int64     // of them, those that a sweep has seen
	floor    int64     // IDs below it are never handed out

	waiters queue
	missing int64 // IDs that the waiters still need

	stepper   stepper
	regressed *RegressedError // not nil: nothing is reserved until it is over
	failure   *failure        // nil: the last refill did not fail
	trouble   *list.Element   // its entry in the allocator's troubles; nil: none

	// The last two refills, for the rate of consumption.
	refilled, refilledBefore time.Time
	takenAt, takenBefore     int64 // IDs taken until then
}

// failure is why and since when refills fail.
type failure struct {
	err     error
	since   time.Time
	retryAt time.Time // when the next attempt is due
	told    bool
	refills int64 // of all tags that had succeeded when it began
}

// segment is a range of which the IDs from next on are not handed out.
type segment struct {
	Range
	next int64
}

// ownLocked gives the tag to the refill that the caller starts.
func (b *buffer) ownLocked() {
	b.loading, b.wake = true, make(chan struct{}, 1)
}

// disownLocked takes it from the refill that ends.
func (b *buffer) disownLocked() {
	b.loading, b.wake = false, nil
}

// pokeLocked ends the pause of the refill, or its next one.
func (b *buffer) pokeLocked() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// takeLocked moves n IDs from memory to the end of ranges; left must be at
// least n.
func (b *buffer) takeLocked(ranges []Range, n int64) []Range {
	b.left -= n
	b.taken += n
	for n > 0 {
		s := &b.segments[0]
		// Counted from what is left: the sum next+n may pass the largest int64.
		if rest := s.Last - s.next + 1; n >= rest {
			ranges = AppendRange(ranges, Range{s.next, s.Last})
			n -= rest
			b.segments = append(b.segments[:0], b.segments[1:]...)
			continue
		}
		ranges = AppendRange(ranges, Range{s.next, s.next + n - 1})
		s.next += n
		n = 0
	}
	return ranges
}

// plan is what the next refill is to reserve.
type plan struct {
	n       int64  // at least as many
	recalls uint32 // of the buffer, then
	base    int64  // the tag's step as known then
	step    int64  // the step as adapted from it
	largest int64  // the largest request that waits for it; 0: none does
	locked  bool   // the record was locked the last time
}

// cause is why a refill of this plan was done, told when the tag's step is known.
func (p plan) cause(tagStep int64) Cause {
	switch {
	case p.largest == 0:
		return CausePrefetch
	case p.largest > max(p.step, tagStep):
		return CauseBatch
	default:
		return CauseDemand
	}
}

// planLocked says what is to be reserved now, if anything:
//   - enough for the requests that wait, at least a step;
//   - else a step, when the next segment is missing and 10 % of the current
//     one is used;
//   - else a step, while refills fail: a store that fails is tried until it
//     works, or nobody would learn that it does.
func (b *buffer) planLocked(now time.Time, maxStep int64) (p plan, wanted bool) {
	switch {
	case b.regressed != nil:
		return plan{}, false // the pause decides when to go on
	case b.waiters.n > 0:
		p.n, p.largest = b.missing-b.left, b.largestLocked()
	case b.exhausted || b.failure == nil && !b.idleLocked():
		return plan{}, false
	}
	p.recalls, p.base, p.step = b.recalls, b.stepper.base, b.stepper.next(now, maxStep)
	p.n = max(p.n, p.step, 1)
	p.locked = b.failure != nil && errors.Is(b.failure.err, ErrLocked)
	return p, true
}

// idleLocked reports whether the next segment should be there and is not.
func (b *buffer) idleLocked() bool {
	switch len(b.segments) {
	case 0:
		return b.stepper.loads > 0 // used up
	case 1:
		s := b.segments[0]
		used, size := s.next-s.First, s.Len()
		return used >= size/10+min(size%10, 1) // 10 %, rounded up
	default:
		return false
	}
}

// largestLocked is the largest request that waits.
func (b *buffer) largestLocked() int64 {
	var n int64
	for w := b.waiters.first; w != nil; w = w.after {
		n = max(n, w.n)
	}
	return n
}

// installLocked takes a reserved range into memory and serves the waiters from
// it. A waiter that is not satisfied keeps what it got: it needs that much
// less from the next refill, however many small requests go past it.
func (b *buffer) installLocked(r Range) {
	b.segments = append(b.segments, segment{Range: r, next: r.First})
	b.left += r.Len()
	b.trimLocked()
	for w := b.waiters.first; w != nil && b.left > 0; w = b.waiters.first {
		n := min(w.missing, b.left)
		w.ranges = b.takeLocked(w.ranges, n)
		w.missing -= n
		b.missing -= n
		if w.missing == 0 {
			b.settleLocked(w, nil)
		}
	}
}

// raiseFloorLocked drops the IDs in memory below floor: those in the segments,
// those that unsatisfied waiters hold, and those of a refill under way.
func (b *buffer) raiseFloorLocked(floor int64) {
	if floor <= b.floor {
		return
	}
	b.floor = floor
	b.trimLocked()
	b.takeBackLocked()
}

// recallLocked gives up all that was reserved: what is in memory, what
// unsatisfied waiters hold, and what a refill under way will bring.
func (b *buffer) recallLocked() {
	b.recalls++
	b.segments, b.left = nil, 0
	b.takeBackLocked()
}

// takeBackLocked gives up what unsatisfied waiters hold.
func (b *buffer) takeBackLocked() {
	for w := b.waiters.first; w != nil; w = w.after {
		b.missing += w.n - w.missing
		w.ranges, w.missing = nil, w.n
	}
}

// recalled reports whether what was planned with so many recalls was given up since.
func (b *buffer) recalled(recalls uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recalls != recalls
}

// forgiveLocked ends the refusal of a store that went backwards if an operator
// has moved max_id since, and far enough. That max_id is there by itself is not
// enough, and neither is that it was moved there before it went back.
func (b *buffer) forgiveLocked(tag Tag) {
	if b.regressed != nil && min(tag.Floor, tag.MaxID) >= b.regressed.Seen {
		b.regressed = nil
	}
}

// trimLocked drops the IDs in the segments below the floor.
func (b *buffer) trimLocked() {
	kept := b.segments[:0]
	b.left = 0
	for _, s := range b.segments {
		s.next = max(s.next, b.floor)
		if s.next <= s.Last {
			kept = append(kept, s)
			b.left += s.Last - s.next + 1
		}
	}
	b.segments = kept
}

// settleLocked ends the wait of w: with its ranges, or with err.
func (b *buffer) settleLocked(w *Waiter, err error) {
	b.waiters.remove(w)
	b.missing -= w.missing
	w.err = err
	if err != nil {
		w.ranges = nil
	}
	w.allocator.waiting.Add(-1) // first: whoever waits may count at once
	close(w.done)
}

// refuseLocked ends all waits with err.
func (b *buffer) refuseLocked(err error) {
	for w := b.waiters.first; w != nil; w = b.waiters.first {
		b.settleLocked(w, err)
	}
}

// recoveredLocked ends the episodes that end with a refill, with the tag, or when
// it is known that the store answers, though not what it should.
func (a *Allocator) recoveredLocked(b *buffer) {
	if b.failure != nil && b.failure.told {
		a.cfg.Notify(Recovered{b.tag, "refill_failed"})
	}
	b.failure = nil
	if b.starved {
		b.starved = false
		a.cfg.Notify(Recovered{b.tag, "starved"})
	}
	if b.strange {
		b.strange = false
		a.strange.Add(-1)
	}
	a.tallyLocked(b)
}

// tellsLocked reports whether the beginning of an episode is told.
func (a *Allocator) tellsLocked(b *buffer) bool {
	if b.stepper.base > 0 || b.strange {
		return true
	}
	if a.strange.Add(1) > maxStrange {
		a.strange.Add(-1)
		return false
	}
	b.strange = true
	return true
}

// shortLocked is the error of a request that was refused because memory had
// too little; the first begins an episode. The request is one of so many that
// wait.
func (a *Allocator) shortLocked(b *buffer, now time.Time, err error, waiting int) error {
	if b.failure != nil && err == ErrTimedOut {
		err = &UnavailableError{Err: b.failure.err, RetryAfter: max(b.failure.retryAt.Sub(now), 0)}
	}
	if !b.starved && a.tellsLocked(b) {
		b.starved = true
		a.cfg.Notify(Starved{Tag: b.tag, Waiting: waiting})
	}
	return err
}

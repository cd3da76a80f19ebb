package allocator

import (
	"container/list"
	"sync"
	"time"
)

// buffer holds what one tag has in memory: the segment that is being handed
// out, the next one, and the requests that wait for more.
//
// All fields but tag and wake are guarded by mu, which is never held across
// I/O, a wait or a call out of the package.
type buffer struct {
	tag  string
	wake chan struct{} // pokes the refill out of its pause; holds one

	mu   sync.Mutex
	gone bool // no longer in the allocator's map: look the tag up again

	segments []segment // [0] is being handed out
	left     int64     // IDs in segments
	taken    int64     // IDs handed out so far
	floor    int64     // IDs below it are never handed out

	waiters list.List // of *Waiter, first come first
	missing int64     // IDs that the waiters still need

	loading   bool // a refill owns the tag
	stepper   stepper
	regressed *RegressedError // not nil: nothing is reserved until it is over
	exhausted bool            // the store has no IDs left
	err       error           // why the last refill failed; nil: it did not
	failing   time.Time       // since when refills fail
	retryAt   time.Time       // when the next attempt is due
	starved   bool            // a request was refused since the last refill

	// The last two refills, for the rate of consumption.
	refilled, refilledBefore time.Time
	takenAt, takenBefore     int64 // IDs taken until then
}

// segment is a range of which the IDs from next on are not handed out.
type segment struct {
	Range
	next int64
}

func newBuffer(tag string) *buffer {
	return &buffer{tag: tag, wake: make(chan struct{}, 1)}
}

// poke ends the refill's pause, if it is in one.
func (b *buffer) poke() {
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
			ranges = appendRange(ranges, Range{s.next, s.Last})
			n -= rest
			b.segments = append(b.segments[:0], b.segments[1:]...)
			continue
		}
		ranges = appendRange(ranges, Range{s.next, s.next + n - 1})
		s.next += n
		n = 0
	}
	return ranges
}

// plan is what the next refill is to reserve.
type plan struct {
	n       int64 // at least as many
	base    int64 // the tag's step as known then
	step    int64 // the step as adapted from it
	largest int64 // the largest request that waits for it; 0: none does
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
	case b.waiters.Len() > 0:
		p.n, p.largest = b.missing-b.left, b.largestLocked()
	case b.exhausted || b.err == nil && !b.idleLocked():
		return plan{}, false
	}
	p.base, p.step = b.stepper.base, b.stepper.next(now, maxStep)
	p.n = max(p.n, p.step, 1)
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
	for e := b.waiters.Front(); e != nil; e = e.Next() {
		n = max(n, e.Value.(*Waiter).n)
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
	for e := b.waiters.Front(); e != nil && b.left > 0; e = b.waiters.Front() {
		w := e.Value.(*Waiter)
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
	for e := b.waiters.Front(); e != nil; e = e.Next() {
		w := e.Value.(*Waiter)
		b.missing += w.n - w.missing
		w.ranges, w.missing = nil, w.n
	}
}

// forgiveLocked ends the refusal of a store that went backwards if an operator
// has moved max_id to floor since, and that is far enough.
func (b *buffer) forgiveLocked(floor int64) {
	if b.regressed != nil && floor >= b.regressed.Seen {
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
	b.waiters.Remove(w.place)
	b.missing -= w.missing
	w.place, w.err = nil, err
	if err != nil {
		w.ranges = nil
	}
	close(w.done)
	w.allocator.waiting.Add(-1)
}

// refuseLocked ends all waits with err.
func (b *buffer) refuseLocked(err error) {
	for e := b.waiters.Front(); e != nil; e = b.waiters.Front() {
		b.settleLocked(e.Value.(*Waiter), err)
	}
}

// recoveredLocked ends the episodes that end with a refill, or with the tag,
// and returns the events that say so.
func (b *buffer) recoveredLocked() (events []Event) {
	if b.err != nil {
		b.err = nil
		events = append(events, Recovered{b.tag, "refill_failed"})
	}
	if b.starved {
		b.starved = false
		events = append(events, Recovered{b.tag, "starved"})
	}
	return events
}

// shortLocked is the error of a request that was refused because memory had
// too little, and the event that begins the episode. The request is one of so
// many that wait.
func (b *buffer) shortLocked(now time.Time, err error, waiting int) (Event, error) {
	if b.err != nil && err == ErrTimedOut {
		err = &UnavailableError{Err: b.err, RetryAfter: max(b.retryAt.Sub(now), 0)}
	}
	if b.starved {
		return nil, err
	}
	b.starved = true
	return Starved{Tag: b.tag, Waiting: waiting}, err
}

package allocator

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// buffer holds what one tag has in memory: the segment that is being handed
// out, the next one, and the requests that wait for more.
//
// mu guards all fields but tag. It is never held across I/O or a wait. Events are
// sent under it, to keep their order. An idle tag should cost little memory, so a refill
// allocates what only it needs.
type buffer struct {
	tag string
	mu  sync.Mutex

	gone           bool          // no longer in the allocator's map: look the tag up again
	loading        bool          // a refill owns the tag
	exhausted      bool          // the store has no IDs left
	starved        bool          // the alert starved was sent since the last refill
	regressedAlert bool          // the alert regressed was sent since the last refill
	unknownAlert   bool          // it counts as one of maxUnknownAlerts
	hasIDs         bool          // troubles counts it as a tag that has IDs
	idle           uint16        // sweeps in a row that saw no use
	wake           chan struct{} // ends the pause of the refill; holds one; the refill reads it unlocked

	segments []Segment // [0] is being handed out
	pending  Range     // reserved, and about to become a segment
	spent    Range     // the last one of which every ID was handed out
	heard    []Range   // reserved by others since the present request to the store was sent, up to maxHeard
	left     int64     // IDs in segments
	taken    int64     // IDs handed out so far
	swept    int64     // of them, those that a sweep has seen
	floor    int64     // IDs below it are never handed out

	waiters queue

	strict  *strict // nil: the tag is not strict, or not known to be
	rules   *ruled  // nil: no operator has set any, or they are not known yet
	stepper stepper
	failure *failure      // nil: the last refill did not fail
	trouble *list.Element // its entry in the allocator's troubles; nil: none

	pace
}

// pace are the last two refills of a buffer, for the rate of consumption.
type pace struct {
	refilled, refilledBefore time.Time
	takenAt, takenBefore     int64 // IDs taken until then
}

// failure is why and since when refills fail.
type failure struct {
	err     error
	since   time.Time
	retryAt time.Time // when the next attempt is due
	alerted bool
	refills int64 // of all tags that had succeeded when it began
}

// Segment is a range in memory. The IDs from Next on are not handed out yet.
type Segment struct {
	Range
	Next int64
}

// beginRefillLocked makes the caller's refill the owner of the tag.
func (b *buffer) beginRefillLocked() {
	b.loading, b.wake = true, make(chan struct{}, 1)
}

// endRefillLocked makes the tag free for the next refill.
func (b *buffer) endRefillLocked() {
	b.loading, b.wake, b.heard = false, nil, nil
}

// wakeLocked ends the pause of the refill, or its next one.
func (b *buffer) wakeLocked() {
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
		// Counted from what is left: the sum Next+n may pass the largest int64.
		if rest := s.Last - s.Next + 1; n >= rest {
			ranges = AppendRange(ranges, Range{s.Next, s.Last})
			n -= rest
			b.spent = s.Range
			b.segments = append(b.segments[:0], b.segments[1:]...)
			continue
		}
		ranges = AppendRange(ranges, Range{s.Next, s.Next + n - 1})
		s.Next += n
		n = 0
	}
	return ranges
}

// installLocked takes a reserved range into memory and serves the waiters from
// it. An unsatisfied waiter keeps what it got, so it needs that much less from
// the next refill, however many small requests come before it.
func (b *buffer) installLocked(r Range) {
	b.segments = append(b.segments, Segment{Range: r, Next: r.First})
	b.trimLocked()
	for w := b.waiters.first; w != nil && b.left > 0; w = b.waiters.first {
		n := min(w.missing, b.left)
		w.ranges = b.takeLocked(w.ranges, n)
		w.missing -= n
		b.waiters.missing -= n
		if w.missing == 0 {
			b.settleLocked(w, nil)
		}
	}
}

// raiseFloorLocked drops the IDs below floor: those in the segments, those of a refill under way, and, if some are
// below, all those that unsatisfied waiters hold.
func (b *buffer) raiseFloorLocked(floor int64) {
	if floor <= b.floor {
		return
	}
	b.floor = floor
	b.trimLocked()
	below := func(r Range) bool { return r.First < floor }
	if w := b.waiters.first; w != nil && slices.ContainsFunc(w.ranges, below) { // only the first one can hold some
		b.emptyWaitersLocked()
	}
}

// discardLocked drops the segments that overlap r, which another generator holds too, a
// pending one included. It returns them as they were reserved, and of a part that a waiter
// holds at least what may have been handed out of r. If there are none and r overlaps the last range
// that was used up, it returns that.
func (b *buffer) discardLocked(r Range) (held []Range) {
	if b.pending.Overlaps(r) {
		held, b.pending = append(held, b.pending), Range{}
	}
	kept := b.segments[:0]
	b.left = 0
	for _, s := range b.segments {
		if s.Overlaps(r) {
			held = append(held, s.Range)
			continue
		}
		kept = append(kept, s)
		b.left += s.Last - s.Next + 1
	}
	b.segments = kept
	for w := b.waiters.first; w != nil; w = w.after {
		for _, part := range w.ranges {
			if part.Overlaps(r) {
				held = append(held, Range{min(r.First, part.First), part.Last})
			}
		}
	}
	if len(held) > 0 {
		b.emptyWaitersLocked()
	} else if b.spent.Overlaps(r) {
		held, b.spent = append(held, b.spent), Range{}
	}
	return held
}

// emptyWaitersLocked drops the IDs that unsatisfied waiters hold.
func (b *buffer) emptyWaitersLocked() {
	for w := b.waiters.first; w != nil; w = w.after {
		b.waiters.missing += w.n - w.missing
		w.ranges, w.missing = nil, w.n
	}
}

// regainLocked takes the IDs back that unsatisfied waiters hold. Only the first one can hold some, and then it has got
// all that there were.
func (b *buffer) regainLocked() {
	if w := b.waiters.first; w != nil {
		for _, r := range w.ranges {
			b.segments = append(b.segments, Segment{Range: r, Next: r.First})
		}
	}
	b.emptyWaitersLocked()
	b.trimLocked()
}

// trimLocked drops the IDs in the segments below the floor and above the limit, and counts what is left.
func (b *buffer) trimLocked() {
	kept, end := b.segments[:0], b.rulesLocked().end()
	b.left = 0
	for _, s := range b.segments {
		s.Next, s.Last = max(s.Next, b.floor), min(s.Last, end-1)
		if s.Next <= s.Last {
			kept = append(kept, s)
			b.left += s.Last - s.Next + 1
		}
	}
	b.segments = kept
}

// settleLocked ends the wait of w: with its ranges, or with err.
func (b *buffer) settleLocked(w *Waiter, err error) {
	b.endLocked(w, err)
	if w.then == nil {
		w.announce()
	} else {
		go w.announce() // it must not run under the lock
	}
}

// endLocked is settleLocked for a caller that announces the end itself, after it has released the lock.
func (b *buffer) endLocked(w *Waiter, err error) {
	b.waiters.remove(w)
	b.waiters.missing -= w.missing
	w.err = err
	if err != nil {
		w.ranges = nil
		if !w.fromPeer {
			b.chargeLocked(-w.n)
		}
	}
	w.allocator.waiting.Add(-1) // before the caller goes on, because it may look at the count
	if w.timer != nil {
		w.timer.Stop()
	}
}

// refuseLocked ends all waits with err.
func (b *buffer) refuseLocked(err error) {
	for w := b.waiters.first; w != nil; w = b.waiters.first {
		b.settleLocked(w, err)
	}
}

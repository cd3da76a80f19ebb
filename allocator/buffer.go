package allocator

import (
	"slices"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
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

	gone      bool          // no longer in the allocator's map: look the tag up again
	exhausted bool          // the store has no IDs left
	hasIDs    bool          // troubles counts it as a tag that has IDs
	trouble   uint8         // and as one that has this kind of trouble
	alerts    alerts        // were sent since the last refill
	wake      chan struct{} // nil: no refill owns the tag; else it ends a pause of that one, which reads it unlocked

	segments []Segment // [0] is being handed out
	spent    Segment   // the last one of which every ID was handed out
	heard    []Range   // reserved by others since the present request to the store was sent, up to maxHeard
	saved    bool      // they are for the requests that wait, because the first of these needs more
	taken    int64     // IDs handed out so far
	swept    int64     // of them, those that the last sweep saw
	floor    int64     // IDs below it are never handed out

	waiters queue

	strict  *strict // nil: the tag is not strict, or not known to be
	rules   *ruled  // nil: no operator has set any, or they are not known yet
	stepper stepper
	failure *failure // nil: the last refill did not fail

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
}

// Segment is a range in memory. The IDs from Next on are not handed out yet.
type Segment struct {
	Range
	Next int64
	Run  string // of the generator that claimed it and handed it over; empty: this one claimed it
}

// overlaps reports whether a claim of a run takes IDs of the segment, and is not the claim that
// made the segment.
func (s Segment) overlaps(r Range, run string) bool {
	return s.Overlaps(r) && (s.Run == "" || s.Run != run)
}

// beginRefillLocked makes the caller's refill the owner of the tag.
func (b *buffer) beginRefillLocked() {
	b.wake = make(chan struct{}, 1)
}

// endRefillLocked makes the tag free for the next refill.
func (b *buffer) endRefillLocked() {
	b.wake, b.heard = nil, nil
}

// wakeLocked ends the pause of the refill, or its next one.
func (b *buffer) wakeLocked() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// takeLocked moves n IDs from memory to the end of ranges; memory must have at least n.
func (b *buffer) takeLocked(ranges []Range, n int64) []Range {
	b.taken += n
	for n > 0 {
		s := &b.segments[0]
		// Counted from what is left: the sum Next+n may pass the largest int64.
		if rest := s.Last - s.Next + 1; n >= rest {
			ranges = idspace.AppendRange(ranges, Range{First: s.Next, Last: s.Last})
			n -= rest
			b.spent = *s
			b.segments = append(b.segments[:0], b.segments[1:]...)
			continue
		}
		ranges = idspace.AppendRange(ranges, Range{First: s.Next, Last: s.Next + n - 1})
		s.Next += n
		n = 0
	}
	return ranges
}

// installLocked takes a reserved range into memory and serves the waiters from it. If it is not
// enough for all of them, the rest is saved for them: requests that come later wait, too, however
// few IDs they need.
func (b *buffer) installLocked(r Range) {
	b.segments = append(b.segments, Segment{Range: r, Next: r.First})
	b.trimLocked()
	b.serveLocked()
	b.saved = b.waiters.Len() > 0
}

// serveLocked serves the waiters in their order, until memory has too few IDs for one.
func (b *buffer) serveLocked() {
	for w := range b.waiters.all() {
		if w.n > b.leftLocked() {
			return
		}
		b.giveLocked(w)
	}
}

func (b *buffer) giveLocked(w *waiter) { b.settleLocked(w, b.takeLocked(nil, w.n), nil) }

// raiseFloorLocked drops the IDs below floor: those in the segments, and those of a refill under
// way.
func (b *buffer) raiseFloorLocked(floor int64) {
	if floor <= b.floor {
		return
	}
	b.floor = floor
	b.trimLocked()
}

// discardLocked drops the segments that overlap r, which another generator holds too, and returns
// them as they were reserved, and so the last range that was used up, once. What the run that
// claimed r has handed over is no overlap.
func (b *buffer) discardLocked(r Range, run string) (held []Range) {
	b.segments = slices.DeleteFunc(b.segments, func(s Segment) bool {
		overlaps := s.overlaps(r, run)
		if overlaps {
			held = append(held, s.Range)
		}
		return overlaps
	})
	if b.spent.overlaps(r, run) {
		held, b.spent = append(held, b.spent.Range), Segment{}
	}
	return held
}

// trimLocked drops the IDs in the segments below the floor and above the limit.
func (b *buffer) trimLocked() {
	end := b.rulesLocked().end()
	for i := range b.segments {
		s := &b.segments[i]
		s.Next, s.Last = max(s.Next, b.floor), min(s.Last, end-1)
	}
	b.segments = slices.DeleteFunc(b.segments, func(s Segment) bool { return s.Next > s.Last })
}

// leftLocked is how many IDs are in the segments.
func (b *buffer) leftLocked() (n int64) {
	for i := range b.segments {
		n += b.segments[i].Last - b.segments[i].Next + 1
	}
	return n
}

// settleLocked ends the wait of w: with its IDs, or with err.
func (b *buffer) settleLocked(w *waiter, ranges []Range, err error) {
	b.leaveLocked(w, err != nil)
	w.EndLocked(ranges, err)
	go w.Announce() // the callback must not run under the lock
}

// leaveLocked takes w out of the queue. With refund, what it wanted is given back to the quota.
func (b *buffer) leaveLocked(w *waiter, refund bool) {
	b.waiters.Remove(w.place)
	b.saved = b.saved && b.waiters.Len() > 0
	if refund && !w.fromPeer {
		b.chargeLocked(-w.n)
	}
	w.allocator.waiting.Add(-1) // before the caller goes on, because it may look at the count
}

// refuseLocked ends all waits with err.
func (b *buffer) refuseLocked(err error) {
	for w := range b.waiters.all() {
		b.settleLocked(w, nil, err)
	}
}

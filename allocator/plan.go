package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
)

// stepper adapts the step of one tag as Leaf does (its 2019 announcement; SegmentIDGenImpl.java). A
// segment that was used up quickly was too short, one that lasted long was too long. It aims at
// once to twice [Config.Outlast], so that memory lasts at least that long when the store is away.
// Its zero value is ready. It has no lock.
type stepper struct {
	base  int64     // the tag's step in the store; 0 until the first grant
	step  int64     // IDs to reserve next, before adaptation
	loads int       // segments loaded, counted up to 2
	last  time.Time // when the last of them came; its monotonic clock counts
}

// next returns the step of a segment that is loaded now: twice the last one if that lasted less
// than outlast, half of it if twice as long or longer. It is at least the tag's step, and at most
// maxStep or the tag's step. The first two segments have the tag's step: one to serve and one in
// reserve say nothing yet about consumption.
func (s *stepper) next(now time.Time, maxStep int64, outlast time.Duration) int64 {
	if s.loads < 2 {
		return s.step
	}
	most := max(maxStep, s.base)
	step := min(s.step, most) // an operator may have lowered max_step
	switch lasted := now.Sub(s.last); {
	case lasted < outlast:
		return step + min(step, most-step)
	case lasted < 2*outlast:
		return step
	default:
		return max(step/2, s.base)
	}
}

// loaded notes that a segment came for which next had returned step.
func (s *stepper) loaded(now time.Time, step int64) {
	s.step = max(step, s.base)
	s.loads = min(s.loads+1, 2)
	s.last = now
}

// rebase sets the tag's step. If an operator changed it, adaptation starts again from it.
func (s *stepper) rebase(base int64) {
	if base == s.base {
		return
	}
	s.base, s.step = base, base
	s.loads = min(s.loads, 1)
}

// plan is what the next claim of a tag takes, and for whom.
type plan struct {
	need    int64  // at least so many
	n       int64  // and so many where no limit is near
	step    int64  // as adapted; the claim notes it
	base    int64  // the tag's step as known then; 0: the tag was never loaded
	rules   int64  // the version of the rules that were known
	before  uint64 // if the tag is strict, it is for the waiters with a lower number
	largest int64  // the largest request that waits for it; 0: none does
	locked  bool   // the record was locked at the last attempt
	strict  bool   // the tag is known to be strict: see [Allocator.claim]

	// Of a strict tag.
	requests  int
	fromPeers bool      // one of them was passed on by another generator, so it must not be passed on again
	sent      time.Time // when it was sent to the store; zero: not yet, or to another generator
}

// cause is why a refill of this plan was done.
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

// planLocked returns what must be reserved now, if anything:
//   - enough for the requests that wait, at least a step;
//   - else a step, if the next segment is missing and 10 % of the current one is used;
//   - else a step, while refills fail: only a retry shows that the store works again.
func (b *buffer) planLocked(now time.Time, cfg *Config) (p plan, wanted bool) {
	switch {
	case b.strict != nil:
		return b.planStrictLocked(false)
	case b.rulesLocked().Paused:
		return plan{}, false // an operator decides
	case b.waiters.Len() > 0:
		p.n, p.before = -b.leftLocked(), b.waiters.pushed
		for w := range b.waiters.all() {
			p.n += w.n
			p.largest = max(p.largest, w.n)
		}
	case b.exhausted || b.failure == nil && !b.nextDueLocked():
		return plan{}, false
	}
	p.base, p.rules = b.stepper.base, b.rulesLocked().Version
	p.step = b.stepper.next(now, cfg.MaxStep, cmp.Or(time.Duration(b.rulesLocked().Outlast), cfg.Outlast))
	p.need = max(p.n, 1)
	p.n = max(p.need, p.step)
	p.locked = b.failure != nil && errors.Is(b.failure.err, ErrLocked)
	return p, true
}

// nextDueLocked reports whether the next segment should be there and is not.
func (b *buffer) nextDueLocked() bool {
	switch len(b.segments) {
	case 0:
		return b.stepper.loads > 0 // used up
	case 1:
		s := b.segments[0]
		used, size := s.Next-s.First, s.Len()
		return used >= size/10+min(size%10, 1) // 10 %, rounded up
	default:
		return false
	}
}

// Range is a run of consecutive IDs, First to Last, both included.
type Range = idspace.Range

// Grant is what was claimed.
type Grant struct {
	Range
	Step   int64  // the tag's step; 1 if it is strict
	Stored Stored // the record with the claim; of a range that another generator has claimed it has the order alone
	// Ending says that this range is the one by which 80 % of the IDs below the limit are reserved.
	Ending bool
}

// check returns an error for a range that no store may return.
func (g Grant) check(from int64) error {
	if g.First < max(from, 1) || g.Last < g.First || g.Last == math.MaxInt64 || g.Step < 1 {
		return fmt.Errorf("the store returned an invalid range: %d to %d, step %d; it must begin at %d or above",
			g.First, g.Last, g.Step, from)
	}
	return nil
}

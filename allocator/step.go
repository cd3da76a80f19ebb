package allocator

import "time"

// The step policy of Leaf (its 2019 announcement; SegmentIDGenImpl.java): a
// segment that was used up quickly was too short, one that lasted long was too
// long. It aims at segments of 15 to 30 minutes, so that a dead store is not
// felt for at least as long.
const (
	shortSegment = 15 * time.Minute
	longSegment  = 30 * time.Minute
)

// stepper adapts the step of one tag. Its zero value is ready. It has no lock.
type stepper struct {
	base  int64     // the tag's step in the store; 0 until the first grant
	step  int64     // IDs to reserve next, before adaptation
	loads int       // segments loaded, counted up to 2
	last  time.Time // when the last of them came; its monotonic clock counts
}

// next is the step for a segment that is loaded now: double the last one's if
// that lasted under 15 minutes, half if over 30, never below the tag's step
// and never above most (or the tag's step, if that is above). The first two
// segments have the tag's step: one to serve, one to have ready, which says
// nothing yet about how fast they are used.
func (s *stepper) next(now time.Time, most int64) int64 {
	if s.loads < 2 {
		return s.step
	}
	switch lasted := now.Sub(s.last); {
	case lasted < shortSegment:
		if s.step > most/2 {
			return max(s.step, most) // s.step is above most only where the tag's step is
		}
		return s.step * 2
	case lasted < longSegment:
		return s.step
	default:
		return max(s.step/2, s.base)
	}
}

// loaded notes that a segment came for which next had returned step.
func (s *stepper) loaded(now time.Time, step int64) {
	s.step = max(step, s.base)
	s.loads = min(s.loads+1, 2)
	s.last = now
}

// rebase takes over the tag's step. When it changed, adaptation starts anew
// from it: an operator's word counts more than the past.
func (s *stepper) rebase(base int64) {
	if base == s.base {
		return
	}
	s.base, s.step = base, base
	s.loads = min(s.loads, 1)
}

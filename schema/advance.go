package schema

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/leafbus/leafbus/allocator"
)

var _ allocator.Numbers = (*Store)(nil)

// Advance implements [allocator.Numbers]. It takes one statement if the row has the step that is expected.
func (s *Store) Advance(ctx context.Context, tag string, n, from int64) (r allocator.Range, step int64, err error) {
	o, err := s.of(tag)
	if err != nil {
		return r, 0, err
	}
	if err := s.unfit.Load(); err != nil {
		return r, 0, *err
	}
	if r, step, err = s.move(ctx, o, tag, n, from); err != nil {
		return r, 0, s.failed(ctx, tag, err)
	}
	s.found()
	return r, step, nil
}

// attempts bounds the statements of one Advance that match no row: one for the step that was expected, one for the last
// IDs, and one for a change meanwhile.
const attempts = 3

// move moves max_id over a range and returns it.
func (s *Store) move(ctx context.Context, o *opened, tag string, n, from int64) (none allocator.Range, step int64, err error) {
	if step = s.steps.get(tag); step == 0 {
		step = min(n, allocator.LimitStep) // most requests for a range are for a step
	}
	amount := max(n, step)
	for range attempts {
		first, err := o.advance(ctx, tag, amount, step, from)
		if err != nil {
			return none, 0, err
		}
		if first > 0 {
			s.steps.set(tag, step)
			return allocator.Range{First: first, Last: first + amount - 1}, step, nil
		}
		row, err := o.find(ctx, tag)
		if err != nil {
			s.steps.set(tag, 0)
			return none, 0, err
		}
		step = row.Step
		if row.MaxID < from {
			if err := s.raise(ctx, o, tag, row.MaxID, from, max(n, step)); err != nil {
				return none, 0, err
			}
			row.MaxID = from // at least: another generator has raised it, or a replica answered
		}
		left := math.MaxInt64 - row.MaxID
		if left < n {
			return none, 0, fmt.Errorf("%w: the database has %d IDs of %s left", allocator.ErrExhausted, left, tag)
		}
		amount = min(max(n, step), left)
	}
	return none, 0, fmt.Errorf("%w: the row of %s was changed", allocator.ErrConflict, tag)
}

// mostSteps bounds the steps that are remembered.
const mostSteps = 1 << 18

// steps are those that rows had when they were last read. One that was changed since matches no row, and is read again.
type steps struct {
	mu sync.Mutex
	of map[string]int64 // by tag
}

// get returns the step of a tag; 0: it is not known.
func (s *steps) get(tag string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[tag]
}

// set remembers the step of a tag; 0 forgets it.
func (s *steps) set(tag string, step int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case step == 0:
		delete(s.of, tag)
		return
	case s.of == nil || len(s.of) >= mostSteps:
		s.of = make(map[string]int64)
	}
	s.of[tag] = step
}

package schema

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/leafbus/leafbus/allocator"
)

const (
	// attempts bounds the statements of one Advance that match no row: one for the step that was expected, one for the
	// last IDs, and one for a change meanwhile.
	attempts = 3
	// raiseRoom is how many ranges lie between what is known to be in use and max_id after it was moved up. Other generators
	// may be about to claim ranges that they took before the database went back. Without the room, max_id would soon be
	// found below those, and moved up a second time with a second alert.
	raiseRoom = 8
	// mostSteps bounds the steps that are remembered.
	mostSteps = 1 << 18
)

// Advance implements [allocator.Numbers]. It takes one statement if the row has the step that is expected.
func (d *Database) Advance(ctx context.Context, tag string, n, from int64) (r allocator.Range, step int64, err error) {
	o, err := d.useFor(tag)
	if err != nil {
		return r, 0, err
	}
	if err := d.unfit.Load(); err != nil {
		return r, 0, *err
	}
	step = d.steps.get(tag)
	if step == 0 {
		step = min(n, allocator.LimitStep) // most ranges are of a step
	}
	r, step, err = o.take(ctx, tag, n, from, step)
	d.steps.set(tag, step)
	if err != nil {
		return allocator.Range{}, 0, d.explainOf(ctx, tag, err)
	}
	d.found()
	return r, step, nil
}

// take moves max_id over a range. It returns the range, and the step; 0: it is not known.
func (o *opened) take(ctx context.Context, tag string, n, from, expected int64) (r allocator.Range, step int64, err error) {
	step = expected
	amount := max(n, step)
	for range attempts {
		first, err := o.advance(ctx, tag, amount, step, from)
		if err != nil {
			return r, 0, err
		}
		if first > 0 {
			return allocator.Range{First: first, Last: first + amount - 1}, step, nil
		}
		row, err := o.find(ctx, tag)
		if err != nil {
			return r, 0, err
		}
		step = row.Step
		if row.MaxID < from {
			if err := o.raise(ctx, tag, row.MaxID, from, max(n, step)); err != nil {
				return r, step, err
			}
			row.MaxID = from // at least: another generator has raised it, or a replica answered
		}
		left := math.MaxInt64 - row.MaxID
		if left < n {
			return r, step, fmt.Errorf("%w: the database has %d IDs of %s left", allocator.ErrExhausted, left, tag)
		}
		amount = min(max(n, step), left)
	}
	return r, 0, fmt.Errorf("%w: the row of %s was changed", allocator.ErrConflict, tag)
}

// advance moves max_id by amount and returns where it was; 0: no row matched. It moves none that is below from.
func (o *opened) advance(ctx context.Context, tag string, amount, step, from int64) (first int64, err error) {
	// As plain text: building it would take a tenth of the time of the whole.
	result, err := o.db.ExecContext(ctx, "UPDATE ?alloc SET max_id = LAST_INSERT_ID(GREATEST(max_id, 1) + ?) WHERE "+named+
		" AND step = ? AND max_id >= 0 AND GREATEST(max_id, 1) BETWEEN ? AND ?", amount, tag, tag, step, from, math.MaxInt64-amount)
	if err != nil {
		return 0, err
	}
	affected, err := result.RowsAffected()
	if err != nil || affected == 0 {
		return 0, err
	}
	end, err := result.LastInsertId()
	if err != nil {
		return 0, err
	}
	if affected != 1 || end-amount < 1 {
		return 0, fmt.Errorf("the database changed %d rows of %s and answers that max_id is %d, after it was moved by %d: the range is dropped; "+
			"does %s have a trigger by now?", affected, tag, end, amount, o.table)
	}
	return end - amount, nil
}

// raise moves max_id up to from or above, where it was below when it was read. It returns nil if the statement
// changed nothing. amount is the length of a range.
func (o *opened) raise(ctx context.Context, tag string, was, from, amount int64) error {
	to := from
	if amount < (math.MaxInt64-from)/(2*raiseRoom) { // not where it would use up the last IDs
		to += raiseRoom * amount
	}
	result, err := o.db.ExecContext(ctx, "UPDATE ?alloc SET max_id = ? WHERE "+named+" AND max_id < ?", to, tag, tag, from)
	if err != nil {
		return err
	}
	affected, err := result.RowsAffected()
	if err == nil && affected > 0 {
		err = &allocator.AdvancedError{Tag: tag, Got: was, Seen: from}
	}
	return err
}

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

package schema

import (
	"context"
	"fmt"
	"math"

	"github.com/leafbus/leafbus/allocator"
)

const (
	// attempts bounds the statements of one Advance that match no row: one for the step that was expected, one for the
	// last IDs, and one for a change meanwhile.
	attempts = 3
	// raiseRoom is how many ranges lie between what is known to be in use and max_id after it was moved up. Other
	// generators may be about to claim ranges that they took before the database went back. Without the room, max_id
	// would soon be found below those, and moved up a second time with a second alert.
	raiseRoom = 8
)

// Advance implements [allocator.Numbers]. It takes one statement if the row has the step that is expected.
func (d *Database) Advance(
	ctx context.Context, tag string, n, step, from int64,
) (r allocator.Range, now int64, err error) {
	o, err := d.useFor(tag)
	if err != nil {
		return r, 0, err
	}
	if err := d.unfit.Load(); err != nil {
		return r, 0, *err
	}
	if r, now, err = o.take(ctx, tag, n, min(max(step, 1), allocator.LimitStep), from); err != nil {
		return allocator.Range{}, 0, d.explainOf(ctx, tag, err)
	}
	d.found()
	return r, now, nil
}

// take moves max_id over a range. It returns the range and the step.
func (o *opened) take(ctx context.Context, tag string, n, step, from int64) (r allocator.Range, now int64, err error) {
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
				return r, 0, err
			}
			row.MaxID = from // at least: another generator has raised it, or a replica answered
		}
		left := math.MaxInt64 - row.MaxID
		if left < n {
			return r, 0, fmt.Errorf("%w: the database has %d IDs of %s left", allocator.ErrExhausted, left, tag)
		}
		amount = min(max(n, step), left)
	}
	return r, 0, fmt.Errorf("%w: the row of %s was changed", allocator.ErrConflict, tag)
}

// advance moves max_id by amount and returns where it was; 0: no row matched. It moves none that is below from.
func (o *opened) advance(ctx context.Context, tag string, amount, step, from int64) (first int64, err error) {
	// As plain text: building it would take a tenth of the time of the whole.
	result, err := o.db.ExecContext(ctx, "UPDATE ?alloc SET max_id = LAST_INSERT_ID(GREATEST(max_id, 1) + ?) WHERE "+named+
		" AND step = ? AND max_id >= 0 AND GREATEST(max_id, 1) BETWEEN ? AND ?",
		amount, tag, tag, step, from, math.MaxInt64-amount)
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
		return 0, fmt.Errorf("the database changed %d rows of %s and answers that max_id is %d, after it was moved by "+
			"%d: the range is dropped; "+
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

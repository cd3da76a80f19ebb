package schema

import (
	"context"
	"fmt"
	"math"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
)

// raiseRoom is how many ranges lie between what is known to be in use and max_id after it was moved
// up. Other generators may be about to claim ranges that they took before the database went back.
// Without the room, max_id would soon be found below those, and moved up a second time with a
// second alert.
const raiseRoom = 8

// Advance implements [allocator.Numbers]. It takes one statement if the row has the step that is
// expected.
func (d *Database) Advance(
	ctx context.Context, tag string, n, step, from int64,
) (r allocator.Range, now int64, err error) {
	now = min(max(step, 1), allocator.LimitStep)
	err = d.callFor(ctx, tag, func(o *opened) error {
		if err := o.altered(); err != nil {
			return err
		}
		amount := max(n, now)
		first, err := o.advance(ctx, o.db, tag, amount, now, from)
		if err == nil && first == 0 {
			first, amount, now, err = o.advanceLocked(ctx, tag, n, from)
		}
		r = allocator.Range{First: first, Last: first + amount - 1}
		return err
	})
	if err != nil {
		return allocator.Range{}, 0, err
	}
	return r, now, nil
}

// advanceLocked moves max_id over a range of a row with another step than was expected, or with too
// few IDs left for it. It returns the range and the step. A max_id below from is moved up, and no
// range is taken.
func (o *opened) advanceLocked(ctx context.Context, tag string, n, from int64) (first, amount, step int64, err error) {
	var moved error
	err = o.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		row, err := o.lock(ctx, tx, tag)
		switch {
		case err != nil:
			return err
		case row.BizTag == "":
			return allocator.ErrUnknownTag
		case row.check() != nil:
			return row.check()
		}
		step = row.Step
		row.MaxID = max(row.MaxID, 1)
		amount = max(n, step)
		if row.MaxID < from {
			moved = &allocator.AdvancedError{Tag: tag, Got: row.MaxID, Seen: from}
			to := from
			if amount < (math.MaxInt64-from)/(2*raiseRoom) { // not where it would use up the last IDs
				to += raiseRoom * amount
			}
			_, err := tx.ExecContext(ctx, "UPDATE ?alloc SET max_id = GREATEST(max_id, ?) WHERE "+named, to, tag, tag)
			return err
		}
		left := math.MaxInt64 - row.MaxID
		if left < n {
			return fmt.Errorf("%w: the database has %d IDs of %s left", allocator.ErrExhausted, left, tag)
		}
		amount = min(amount, left)
		if first, err = o.advance(ctx, tx, tag, amount, step, from); err == nil && first == 0 {
			err = fmt.Errorf("the database did not change the row of %s; does %s have a trigger by now?", tag, o.table)
		}
		return err
	})
	if err == nil {
		err = moved
	}
	return first, amount, step, err
}

// advance moves max_id by amount and returns where it was; 0: no row matched. It moves none that is
// below from.
func (o *opened) advance(
	ctx context.Context, db bun.IDB, tag string, amount, step, from int64,
) (first int64, err error) {
	// As plain text: building it would take a tenth of the time of the whole.
	result, err := db.ExecContext(ctx, "UPDATE ?alloc SET max_id = LAST_INSERT_ID(GREATEST(max_id, 1) + ?) WHERE "+named+
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

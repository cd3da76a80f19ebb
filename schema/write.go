package schema

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// Add implements [allocator.Numbers].
func (d *Database) Add(ctx context.Context, r allocator.Row) error {
	return d.put(ctx, r.Name, func(o *opened) error {
		row := map[string]any{"biz_tag": r.Name, "max_id": max(r.MaxID, 1), "step": r.Step}
		switch {
		case o.description != "": // also an empty one: the column may have no default
			row[o.description] = r.Description
		case r.Description != "":
			return o.noDescription()
		}
		_, err := o.db.NewInsert().Model(&row).TableExpr("?alloc").Exec(ctx)
		if number(err) == errDuplicate {
			return fmt.Errorf("%w: %s has %s, or a tag that its collation treats as the same (it ignores letters' case "+
				"and spaces at the end)",
				allocator.ErrExists, o.table, r.Name)
		}
		return err
	})
}

// Raise implements [allocator.Numbers].
func (d *Database) Raise(ctx context.Context, tag string, end int64, step *int64, description *string) error {
	return d.put(ctx, tag, func(o *opened) error {
		q := o.db.NewUpdate().TableExpr("?alloc").Set("max_id = GREATEST(max_id, ?)", end).Where(named, tag, tag)
		if step != nil {
			if err := allocator.CheckStep(*step, allocator.LimitStep); err != nil {
				return err
			}
			q.Set("step = ?", *step)
		}
		switch {
		case description == nil:
		case o.description != "":
			q.Set("? = ?", bun.Ident(o.description), *description)
		case *description != "":
			return o.noDescription()
		}
		result, err := q.Exec(ctx)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n == 0 { // the row was so already, or there is none
			var row alloc
			if row, err = o.lock(ctx, o.db, tag); err == nil && row.BizTag == "" {
				err = allocator.ErrUnknownTag
			}
		}
		return err
	})
}

func (o *opened) noDescription() error {
	return fmt.Errorf("%w: table %s has no column for a description; ALTER TABLE %[2]s ADD description "+
		"varchar(256)", idspace.ErrBadValue, o.table)
}

// Mark implements [allocator.Numbers].
func (d *Database) Mark(ctx context.Context, tag string, mark int64, kind string) error {
	return d.put(ctx, tag, func(o *opened) error { return note(ctx, o.db, tag, mark, kind) })
}

// note writes the mark of a tag. A mark only moves up, and its kind only changes to another one.
func note(ctx context.Context, db bun.IDB, tag string, mark int64, kind string) error {
	mark = max(mark, 1)
	_, err := db.ExecContext(ctx, "INSERT INTO leaf_mark (biz_tag, mark, kind) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE"+
		" mark = GREATEST(mark, ?), kind = IF(? = '', kind, ?)", tag, mark, kind, mark, kind, kind)
	return err
}

// Remove implements [allocator.Numbers]. The mark is at least the row's max_id, too.
func (d *Database) Remove(ctx context.Context, tag string, mark int64, kind string) error {
	return d.put(ctx, tag, func(o *opened) error {
		return o.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			row, err := o.lock(ctx, tx, tag) // first: two who lock in different order could wait for each other
			if err != nil {
				return err
			}
			if err := note(ctx, tx, tag, max(mark, row.MaxID), kind); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, "DELETE FROM ?alloc WHERE "+named, tag, tag)
			return err
		})
	})
}

// Pauses before something is repeated that the server has undone: a random time up to firstPause,
// which doubles up to lastPause.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// put writes something about a tag. It repeats what the server has undone because of another
// transaction.
func (d *Database) put(ctx context.Context, tag string, f func(*opened) error) error {
	return d.callFor(ctx, tag, func(o *opened) error {
		for pause := firstPause; ; pause = min(2*pause, lastPause) {
			err := f(o)
			if !undone(err) {
				return forbidden(err)
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(rand.N(pause)):
			}
		}
	})
}

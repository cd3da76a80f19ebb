package schema

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// alloc is a row of the table of the tags: each query names it. The column of the description is
// desc in some tables, and missing in others: each query names it, too.
type alloc struct {
	bun.BaseModel `bun:"alias:a"`

	BizTag      string         `bun:"biz_tag,pk"`
	MaxID       int64          `bun:"max_id"`
	Step        int64          `bun:"step"`
	Description sql.NullString `bun:"description,scanonly"`
}

// mark is a row of leaf_mark.
type mark struct {
	bun.BaseModel `bun:"table:leaf_mark,alias:m"`

	BizTag string `bun:"biz_tag,pk"`
	Mark   int64  `bun:"mark"` // how far the name was in use
	Kind   string `bun:"kind"` // of the tag that it belongs to; empty: not known
}

// named finds the row of a tag by its name. It takes the name twice: for the index, and byte by
// byte, because collations ignore letters' case and spaces at the end.
const named = "biz_tag = ? AND CAST(CONVERT(biz_tag USING utf8mb4) AS BINARY) = CAST(? AS BINARY)"

// rows selects rows of tags, with their descriptions if it has them.
func (o *opened) rows(db bun.IDB, to any) *bun.SelectQuery {
	q := db.NewSelect().Model(to).ModelTableExpr("?alloc AS a").Column("biz_tag", "max_id", "step")
	if o.description != "" {
		q = q.ColumnExpr("?TableAlias.? AS description", bun.Ident(o.description))
	}
	return q
}

// lock reads the row of a tag, if there is one, and locks it until the end of the transaction, or
// for a moment.
func (o *opened) lock(ctx context.Context, db bun.IDB, tag string) (row alloc, err error) {
	err = scan(ctx, o.rows(db, &row).Where(named, tag, tag).For("UPDATE"))
	return row, err
}

// scan reads one row, or none.
func scan(ctx context.Context, q *bun.SelectQuery) error {
	err := q.Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// check reports whether IDs of the row can be served.
func (a alloc) check() error {
	repair := func(column string, n, least, most int64) error {
		return fmt.Errorf("%w: its %s in the database is %d, not from %d to %d; set it right by SQL where biz_tag is '%s'",
			allocator.ErrDamaged, column, n, least, most, a.BizTag)
	}
	switch {
	case a.MaxID < 0: // others than Leaf begin at 0
		return repair("max_id", a.MaxID, 0, math.MaxInt64)
	case allocator.CheckStep(a.Step, allocator.LimitStep) != nil:
		return repair("step", a.Step, 1, allocator.LimitStep)
	}
	return nil
}

// row is what others see of it.
func (a alloc) row() allocator.Row {
	return allocator.Row{
		Name: a.BizTag, MaxID: max(a.MaxID, 1), Step: a.Step, Description: a.Description.String,
		Problem: cmp.Or(idspace.CheckTag(a.BizTag), a.check()),
	}
}

// on returns a row with the mark, if there is one.
func (m mark) on(r allocator.Row) allocator.Row {
	if m.BizTag != "" {
		r.Mark, r.Kind = max(m.Mark, 1), m.Kind
	}
	return r
}

// Peek implements [allocator.Numbers]. The mark is read after the row: one that a deletion wrote is
// not missed.
func (d *Database) Peek(ctx context.Context, tag string) (r allocator.Row, err error) {
	err = d.callFor(ctx, tag, func(o *opened) error {
		var m mark
		row, err := o.lock(ctx, o.db, tag)
		if err == nil {
			err = scan(ctx, o.db.NewSelect().Model(&m).Where("?TableAlias.biz_tag = ?", tag).For("UPDATE"))
		}
		r = allocator.Row{Name: tag}
		if row.BizTag != "" {
			r = row.row()
		}
		r = m.on(r)
		return err
	})
	return r, err
}

// Rows implements [allocator.Numbers]. All that it brings is of one moment.
func (d *Database) Rows(ctx context.Context, f func(allocator.Row)) error {
	return d.call(ctx, "", func(o *opened) error {
		var marks []mark
		var rows []alloc
		err := o.db.RunInTx(ctx, &sql.TxOptions{ReadOnly: true}, func(ctx context.Context, tx bun.Tx) error {
			if err := tx.NewSelect().Model(&marks).Scan(ctx); err != nil {
				return err
			}
			return o.rows(tx, &rows).Scan(ctx)
		})
		if err != nil {
			return err
		}
		marked := make(map[string]mark, len(marks))
		for _, m := range marks {
			marked[m.BizTag] = m
		}
		for _, a := range rows {
			f(marked[a.BizTag].on(a.row()))
			delete(marked, a.BizTag)
		}
		for name, m := range marked {
			f(m.on(allocator.Row{Name: name}))
		}
		return nil
	})
}

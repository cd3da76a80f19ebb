package schema

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
)

// Peek implements [allocator.Numbers]. The mark is read after the row: one that a deletion wrote is not missed.
func (s *Store) Peek(ctx context.Context, tag string) (allocator.Row, error) {
	o, err := s.of(tag)
	if err != nil {
		return allocator.Row{}, err
	}
	var row alloc
	var m mark
	err = scan(ctx, o.rows(o.db, &row).Where(named, tag, tag).For("UPDATE"))
	if err == nil {
		err = scan(ctx, o.db.NewSelect().Model(&m).Where("?TableAlias.biz_tag = ?", tag).For("UPDATE"))
	}
	if err != nil {
		return allocator.Row{}, s.failed(ctx, tag, err)
	}
	s.found()
	return row.with(tag, m), nil
}

// scan reads one row, or none.
func scan(ctx context.Context, q *bun.SelectQuery) error {
	err := q.Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// with is what the database has of a tag: a row and a mark. One that is not there has no name.
func (a alloc) with(tag string, m mark) allocator.Row {
	r := allocator.Row{Name: tag}
	if m.BizTag != "" {
		r.Mark, r.Kind = max(m.Mark, 1), m.Kind
	}
	if a.BizTag != "" {
		r.MaxID, r.Step, r.Description = max(a.MaxID, 1), a.Step, a.Description.String
		r.Problem = cmp.Or(allocator.CheckTag(tag), a.check())
	}
	return r
}

// Rows implements [allocator.Numbers]. Rows and marks are those of one moment.
func (s *Store) Rows(ctx context.Context, f func(allocator.Row)) error {
	o, err := s.database()
	if err != nil {
		return err
	}
	err = o.db.RunInTx(ctx, &sql.TxOptions{ReadOnly: true}, func(ctx context.Context, tx bun.Tx) error {
		notes, err := marks(ctx, tx, nil)
		if err != nil {
			return err
		}
		var row alloc
		rows, err := o.rows(tx, &row).Rows(ctx)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			row = alloc{}
			if err := o.db.ScanRow(ctx, rows, &row); err != nil {
				return err
			}
			f(row.with(row.BizTag, notes[row.BizTag]))
			delete(notes, row.BizTag)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for name, m := range notes {
			f(alloc{}.with(name, m))
		}
		return nil
	})
	if err != nil {
		return s.lost(ctx, err)
	}
	s.found()
	return nil
}

// find reads the row of a tag that can be served.
func (o *opened) find(ctx context.Context, tag string) (row alloc, err error) {
	err = o.rows(o.db, &row).Where(named, tag, tag).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		err = allocator.ErrUnknownTag
	}
	row.MaxID = max(row.MaxID, 1)
	return row, cmp.Or(err, row.check())
}

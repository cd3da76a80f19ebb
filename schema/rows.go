package schema

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
)

// ofTags is the table of the tags, under the name that the models give it.
const ofTags = "?alloc AS a"

// alloc is a row of the table of the tags: each query names it, by ofTags. The column of the description is desc in
// some tables, and missing in others: each query names it, too.
type alloc struct {
	bun.BaseModel `bun:"alias:a"`

	BizTag      string         `bun:"biz_tag,pk"`
	MaxID       int64          `bun:"max_id"`
	Step        int64          `bun:"step"`
	UpdateTime  time.Time      `bun:"update_time,nullzero"`
	Description sql.NullString `bun:"description,scanonly"`
}

// mark is a row of leaf_mark.
type mark struct {
	bun.BaseModel `bun:"table:leaf_mark,alias:m"`

	BizTag string `bun:"biz_tag,pk"`
	// Floor is where an operator last moved max_id to; see allocator.Tag.
	Floor int64 `bun:"floor"`
	// MaxID is the end of all reserved IDs of a deleted tag; 0: it is not deleted.
	MaxID int64 `bun:"max_id"`

	Mark int64  `bun:"mark"` // how far the name was in use
	Kind string `bun:"kind"` // of the tag that it belongs to; empty: not known
}

// tag is the record of a row and its mark. A row that was inserted by plain SQL
// after a deletion has a floor from then.
func (a alloc) tag(m mark) allocator.Tag {
	return allocator.Tag{
		Name: a.BizTag, MaxID: max(a.MaxID, 1), Step: a.Step,
		Description: a.Description.String, Updated: a.UpdateTime.UTC(), Floor: max(m.Floor, m.MaxID),
	}
}

// tombstone is the record of a deleted tag.
func (m mark) tombstone() allocator.Tag {
	return allocator.Tag{Name: m.BizTag, MaxID: m.MaxID, Deleted: true}
}

// check reports whether IDs of the row can be served.
func (a alloc) check() error {
	if allocator.CheckStep(a.Step, allocator.LimitStep) != nil {
		return fmt.Errorf("%w: the step of %s in the database is %d, not from 1 to %d; set it right with `leaf tag set %s --step N`",
			allocator.ErrDamaged, a.BizTag, a.Step, int64(allocator.LimitStep), a.BizTag)
	}
	return nil
}

// named finds the row of a tag by its name. It takes the name twice: for the
// index, and byte by byte, because collations ignore letters' case and spaces at
// the end.
const named = "biz_tag = ? AND CAST(CONVERT(biz_tag USING utf8mb4) AS BINARY) = CAST(? AS BINARY)"

// load reads a tag's row and its mark; lock may be UPDATE. The error is
// ErrUnknownTag or ErrDeleted where there is no row; then too the mark is
// returned.
func (o *opened) load(ctx context.Context, db bun.IDB, tag, lock string) (row alloc, m mark, err error) {
	scan := func(q *bun.SelectQuery) (found bool, err error) {
		if lock != "" {
			q = q.For(lock)
		}
		err = q.Scan(ctx)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	}
	found, err := scan(o.rows(db, &row).Where(named, tag, tag))
	if err != nil {
		return row, m, err
	}
	_, err = scan(db.NewSelect().Model(&m).Where("?TableAlias.biz_tag = ?", tag))
	switch {
	case err != nil || found:
		return row, m, err
	case m.MaxID > 0:
		return row, m, allocator.ErrDeleted
	}
	return row, m, allocator.ErrUnknownTag
}

// rows selects rows of tags, with their descriptions if it has them.
func (o *opened) rows(db bun.IDB, to any) *bun.SelectQuery {
	q := db.NewSelect().Model(to).ModelTableExpr(ofTags).Column("biz_tag", "max_id", "step", "update_time")
	if o.description != "" {
		q = q.ColumnExpr("?TableAlias.? AS description", bun.Ident(o.description))
	}
	return q
}

// each reads the rows of the table, one after the other, without keeping them.
// problem says why a row cannot be served.
func (o *opened) each(ctx context.Context, f func(row alloc, problem error)) error {
	rows, err := o.db.NewSelect().Model((*alloc)(nil)).ModelTableExpr(ofTags).Column("biz_tag", "max_id", "step").Rows(ctx)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var row alloc
		if err := rows.Scan(&row.BizTag, &row.MaxID, &row.Step); err != nil {
			return err
		}
		problem := cmp.Or(allocator.CheckTag(row.BizTag), row.check())
		if problem != nil {
			problem = fmt.Errorf("%q: %w", row.BizTag, problem)
		}
		f(row, problem)
	}
	return rows.Err()
}

// marks returns the marks of these tags by name; nil: of all.
func marks(ctx context.Context, db bun.IDB, names []string) (map[string]mark, error) {
	var list []mark
	q := db.NewSelect().Model(&list)
	if names != nil {
		if len(names) == 0 {
			return nil, nil
		}
		q = q.Where("?TableAlias.biz_tag IN (?)", bun.List(names))
	}
	if err := q.Scan(ctx); err != nil {
		return nil, err
	}
	byName := make(map[string]mark, len(list))
	for _, m := range list {
		byName[m.BizTag] = m
	}
	return byName, nil
}

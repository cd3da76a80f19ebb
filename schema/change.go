package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
)

// Pauses before a transaction is repeated that the server has undone: a random
// time up to firstPause, which doubles up to lastPause.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// Create implements [allocator.Store].
func (s *Store) Create(ctx context.Context, tag allocator.Tag) (allocator.Tag, error) {
	if tag.Order != allocator.Trend {
		return allocator.Tag{}, fmt.Errorf("%w: the database keeps no strict and no opaque tags", allocator.ErrBadValue)
	}
	return s.change(ctx, tag.Name, func(ctx context.Context, o *opened, tx bun.Tx) error {
		_, _, err := o.load(ctx, tx, tag.Name, "UPDATE")
		if err == nil {
			return fmt.Errorf("%w: %s", allocator.ErrExists, tag.Name)
		}
		if !errors.Is(err, allocator.ErrUnknownTag) {
			return err
		}
		err = o.insert(ctx, tx, tag)
		if number(err) == errDuplicate {
			return fmt.Errorf("%w: %s has %s by now, or a tag that its collation treats as the same (it ignores letters' case and spaces at the end)",
				allocator.ErrExists, o.table, tag.Name)
		}
		if err != nil {
			return err
		}
		// The mark counts only now, with the row locked: until here other generators
		// could create the tag, use it and delete it.
		_, m, err := o.load(ctx, tx, tag.Name, "UPDATE")
		if err != nil {
			return err
		}
		end := max(tag.MaxID, m.Floor, m.MaxID)
		if tag.MaxID < end {
			if err := set(ctx, tx, allocator.Tag{Name: tag.Name, MaxID: end, Step: tag.Step}); err != nil {
				return err
			}
		}
		if end <= 1 {
			return nil
		}
		return write(ctx, tx, mark{BizTag: tag.Name, Floor: end})
	})
}

// Update implements [allocator.Store].
func (s *Store) Update(ctx context.Context, tag string, c allocator.Change) (allocator.Tag, error) {
	return s.change(ctx, tag, func(ctx context.Context, o *opened, tx bun.Tx) error {
		row, m, err := o.load(ctx, tx, tag, "UPDATE")
		if err != nil {
			return err
		}
		t, err := row.tag(m).With(c)
		if err != nil {
			return err
		}
		if err := set(ctx, tx, t); err != nil {
			return err
		}
		if c.Description != nil {
			if err := o.describe(ctx, tx, tag, *c.Description); err != nil {
				return err
			}
		}
		if c.MaxID == nil {
			return nil
		}
		return write(ctx, tx, mark{BizTag: tag, Floor: t.Floor})
	})
}

// Delete implements [allocator.Store]: it deletes the row, and leaf_mark keeps
// its max_id.
func (s *Store) Delete(ctx context.Context, tag string, from int64) (allocator.Tag, error) {
	var last allocator.Tag
	tomb, err := s.change(ctx, tag, func(ctx context.Context, o *opened, tx bun.Tx) error {
		row, m, err := o.load(ctx, tx, tag, "UPDATE")
		if err != nil {
			return err
		}
		last = row.tag(m)
		if err := write(ctx, tx, mark{BizTag: tag, Floor: last.Floor, MaxID: max(last.MaxID, last.Floor, from)}); err != nil {
			return err
		}
		return one(tx.ExecContext(ctx, "DELETE FROM ?alloc WHERE "+named, tag, tag))
	})
	last.MaxID, last.Deleted = tomb.MaxID, true
	return last, err
}

// change changes a tag in a transaction, and returns the new record. It repeats a
// transaction that the server undid because of another one, so f may be called several
// times. If the commit got no answer the change may have happened, and the error
// matches [allocator.ErrUncertain].
func (s *Store) change(ctx context.Context, tag string, f func(context.Context, *opened, bun.Tx) error) (allocator.Tag, error) {
	o, err := s.database()
	if err != nil {
		return allocator.Tag{}, err
	}
	if err := allocator.CheckTag(tag); err != nil {
		return allocator.Tag{}, err
	}
	options := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var t allocator.Tag
		committing := false
		err := o.db.RunInTx(ctx, options, func(ctx context.Context, tx bun.Tx) error {
			if err := f(ctx, o, tx); err != nil {
				return err
			}
			row, m, err := o.load(ctx, tx, tag, "")
			if errors.Is(err, allocator.ErrDeleted) {
				t, err = m.tombstone(), nil
			} else {
				t = row.tag(m)
			}
			committing = err == nil
			return err
		})
		if err == nil {
			s.remember(tag, t.Step)
			return t, nil
		}
		switch {
		case number(err) == errStatements: // binlog_format=STATEMENT wants more of a transaction
			options = nil
		case committing && number(err) == 0: // the server has not answered
			return allocator.Tag{}, fmt.Errorf("%w: %w", allocator.ErrUncertain, s.explainChange(ctx, err))
		case !undone(err):
			return allocator.Tag{}, s.explainChange(ctx, err)
		}
		select {
		case <-ctx.Done():
			return allocator.Tag{}, s.explain(ctx, err)
		case <-time.After(rand.N(pause)):
		}
	}
}

// insert makes the row of a tag, with the description at once: its column may
// have no default.
func (o *opened) insert(ctx context.Context, tx bun.Tx, t allocator.Tag) error {
	if o.description != "" {
		return one(tx.ExecContext(ctx, "INSERT INTO ?alloc (biz_tag, max_id, step, ?) VALUES (?, ?, ?, ?)",
			bun.Ident(o.description), t.Name, t.MaxID, t.Step, t.Description))
	}
	if err := o.describe(ctx, tx, t.Name, t.Description); err != nil {
		return err
	}
	return one(tx.ExecContext(ctx, "INSERT INTO ?alloc (biz_tag, max_id, step) VALUES (?, ?, ?)", t.Name, t.MaxID, t.Step))
}

// set changes the numbers of a tag. Its row is locked and was read, so a statement
// that changes nothing is no failure.
func set(ctx context.Context, tx bun.Tx, t allocator.Tag) error {
	_, err := tx.NewUpdate().Model(&alloc{MaxID: t.MaxID, Step: t.Step}).ModelTableExpr(ofTags).Column("max_id", "step").
		Where(named, t.Name, t.Name).Exec(ctx)
	return err
}

// describe sets the description of a tag.
func (o *opened) describe(ctx context.Context, tx bun.Tx, tag, text string) error {
	switch {
	case o.description != "":
		_, err := tx.ExecContext(ctx, "UPDATE ?alloc SET ? = ? WHERE "+named,
			bun.Ident(o.description), text, tag, tag)
		return err
	case text != "":
		return fmt.Errorf("%w: table %s has no column for a description; ALTER TABLE %[2]s ADD description varchar(256)", allocator.ErrBadValue, o.table)
	}
	return nil
}

// write replaces the mark of a tag.
func write(ctx context.Context, tx bun.Tx, m mark) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO leaf_mark (biz_tag, floor, max_id) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE floor = ?, max_id = ?",
		m.BizTag, m.Floor, m.MaxID, m.Floor, m.MaxID)
	return err
}

// one is the error of a statement that did not change exactly one row.
func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n != 1 {
		err = fmt.Errorf("the database changed %d rows instead of one", n)
	}
	return err
}

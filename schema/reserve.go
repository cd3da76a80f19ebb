package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/leafbus/leafbus/allocator"
)

// Reserve implements [allocator.Store] with one statement.
func (s *Store) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	o, err := s.database()
	if err != nil {
		return allocator.Grant{}, err
	}
	if err := allocator.CheckTag(tag); err != nil {
		return allocator.Grant{}, err
	}
	if err := s.unfit.Load(); err != nil {
		return allocator.Grant{}, *err
	}
	g, err := s.reserve(ctx, o, tag, n, from)
	if err != nil {
		return g, s.failed(ctx, tag, err)
	}
	s.found()
	return g, nil
}

func (s *Store) reserve(ctx context.Context, o *opened, tag string, n, from int64) (none allocator.Grant, err error) {
	step := s.knownStep(tag)
	if step < 1 {
		row, err := s.seek(ctx, o, tag)
		if err != nil {
			return none, err
		}
		step = row.Step
	}
	amount := max(n, step)
	for range 2 {
		first, err := o.advance(ctx, tag, amount, step, from)
		if err != nil {
			return none, err
		}
		if first > 0 {
			return allocator.Grant{Range: allocator.Range{First: first, Last: first + amount - 1}, Step: step}, nil
		}
		row, err := s.seek(ctx, o, tag)
		if err != nil {
			return none, err
		}
		if at := max(row.MaxID, 1); at < from {
			if err := s.raise(ctx, o, tag, at, from, amount); err != nil {
				return none, err
			}
			row.MaxID = from // at least: another generator has raised it, or a replica answered
		}
		left := math.MaxInt64 - max(row.MaxID, 1)
		switch {
		case row.Step != step:
			return none, fmt.Errorf("%w: the step of %s was changed", allocator.ErrConflict, tag)
		case left < n:
			return none, fmt.Errorf("%w: the database has %d IDs of %s left", allocator.ErrExhausted, left, tag)
		}
		amount = min(amount, left)
	}
	return none, fmt.Errorf("%w: the row of %s was changed", allocator.ErrConflict, tag)
}

// raiseRoom is how many ranges lie between what is known to be in use and max_id after it was moved up.
// Other generators may be about to claim ranges that they reserved before the database went back. Without
// the room, max_id would soon be found below those, and moved up a second time with a second alert.
const raiseRoom = 8

// raise moves max_id up to from or above, where it was below when it was read. It returns nil if the statement
// changed nothing. amount is the length of a range.
func (s *Store) raise(ctx context.Context, o *opened, tag string, was, from, amount int64) error {
	if s.cfg.Shared {
		row, _, err := o.load(ctx, o.db, tag, "UPDATE") // a replica does not answer this
		if was = max(row.MaxID, 1); err == nil && was < from {
			err = &allocator.RegressedError{Tag: tag, Got: was, Seen: from}
		}
		return err
	}
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

// advance moves max_id by amount and returns where it was; 0: no row matched. It moves none that is below from.
func (o *opened) advance(ctx context.Context, tag string, amount, step, from int64) (first int64, err error) {
	// As plain text: building it would take a tenth of the time of the whole.
	result, err := o.db.ExecContext(ctx, "UPDATE ?alloc SET max_id = LAST_INSERT_ID(GREATEST(max_id, 1) + ?) WHERE "+named+
		" AND step = ? AND GREATEST(max_id, 1) BETWEEN ? AND ?", amount, tag, tag, step, from, math.MaxInt64-amount)
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

// seek reads the row of a tag that can be served, and remembers its step.
func (s *Store) seek(ctx context.Context, o *opened, tag string) (alloc, error) {
	var row alloc
	err := o.db.NewSelect().Model(&row).ModelTableExpr(ofTags).Column("biz_tag", "max_id", "step").Where(named, tag, tag).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		err = allocator.ErrUnknownTag
	}
	if err == nil {
		err = row.check()
	}
	if err != nil {
		s.forgetStep(tag)
		return row, err
	}
	s.remember(tag, row.Step)
	return row, nil
}

// knownTag is what this store last read of a tag.
type knownTag struct {
	step  int64 // 0: not known; an outdated one is noticed when it is used
	floor int64
	poll  uint32 // the reading of the table in which, or after which, the tag was read
}

// knownStep is the step of a tag; 0: it is not known.
func (s *Store) knownStep(tag string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[tag].step
}

// remember notes that a tag exists, and its step.
func (s *Store) remember(tag string, step int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step > allocator.LimitStep { // not to be used
		step = 0
	}
	s.known[tag] = knownTag{step, s.known[tag].floor, s.polls}
}

// forgetStep makes the next Reserve read a tag's row. Only a reading of the whole
// table may report that the tag is gone.
func (s *Store) forgetStep(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.known[tag]; ok {
		k.step = 0
		s.known[tag] = k
	}
}

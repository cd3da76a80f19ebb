package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// mostNamed is how many of the rows that are not served are named in the log.
const mostNamed = 20

// Watch implements [allocator.Store]: it reads the table again and again. It
// tells of steps, floors, and tags that are gone; max_id moves all the time and
// is not told.
func (s *Store) Watch(ctx context.Context, f func(allocator.Tag)) error {
	again := time.NewTicker(s.cfg.Refresh)
	defer again.Stop()
	for all := true; ; all = false {
		if err := s.read(ctx, all, f); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		}
	}
}

// read reads the table and tells f of all tags, or of what changed since it
// was last read.
func (s *Store) read(ctx context.Context, all bool, f func(allocator.Tag)) error {
	o, err := s.database()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.polls++ // what is seen from now on may be newer than what this reads
	s.mu.Unlock()

	if err := s.checkServer(ctx, o); err != nil {
		return s.lost(ctx, err)
	}
	if o, err = s.checkTable(ctx, o); err != nil {
		return s.lost(ctx, err)
	}
	marks, err := marks(ctx, o.db, nil)
	if err != nil {
		return s.lost(ctx, err)
	}
	var unfit []string
	err = o.each(ctx, func(row alloc, problem error) {
		if problem != nil {
			unfit = append(unfit, unserved(row, problem))
			row.Step = 0 // not to be used
		}
		if errors.Is(problem, allocator.ErrBadTag) {
			return
		}
		t := row.tag(marks[row.BizTag])
		delete(marks, row.BizTag)
		if changed := s.changed(t); (changed || all) && problem == nil {
			f(t)
		}
	})
	if err != nil {
		return s.lost(ctx, err)
	}
	gone := s.vanished()
	tombs, err := o.tombstones(ctx, gone)
	if err != nil {
		return s.lost(ctx, err)
	}
	s.found()
	for _, tag := range gone {
		delete(marks, tag)
		if s.drop(tag) {
			f(tombs[tag])
		}
	}
	if all {
		for _, m := range marks {
			if m.MaxID > 0 {
				f(m.tombstone())
			}
		}
	}
	s.warn(unfit)
	return nil
}

// Floors implements [allocator.Store] with one query of what is noted of the tags.
func (s *Store) Floors(ctx context.Context, f func(tag string, floor int64)) error {
	o, err := s.database()
	if err != nil {
		return err
	}
	marks, err := marks(ctx, o.db, nil)
	if err != nil {
		return s.explain(ctx, err)
	}
	for _, m := range marks {
		if floor := max(m.Floor, m.MaxID); floor > 0 {
			f(m.BizTag, floor)
		}
	}
	return nil
}

// checkServer makes sure that the server is no replica by now, and the database
// not another's.
func (s *Store) checkServer(ctx context.Context, o *opened) error {
	var answer string
	if err := o.db.NewRaw(askReadOnly).Scan(ctx, &answer); err != nil {
		return err
	}
	return cmp.Or(writable(answer), s.checkOwner(ctx, o))
}

// checkTable looks whether leaf_alloc was altered: nothing is reserved from one
// that has become unfit until it is fit again.
func (s *Store) checkTable(ctx context.Context, o *opened) (*opened, error) {
	l, err := inspect(ctx, o.db)
	if err != nil {
		return nil, err
	}
	if err := l.refuse(); err != nil {
		err = fmt.Errorf("%w: it was altered: %v", allocator.ErrUnavailable, err) // not %w: it may be altered back
		s.unfit.Store(&err)
		return nil, err
	}
	s.unfit.Store(nil)
	if l.description == o.description && l.binary == o.binary {
		return o, nil
	}
	o = &opened{db: o.db, layout: l}
	s.fit.Store(o)
	s.open.Store(o)
	return o, nil
}

// Rows returns how many rows of leaf_alloc are tags that can be served, and
// which are not, with the reasons.
func (s *Store) Rows(ctx context.Context) (tags int, unfit []string, err error) {
	o, err := s.examine(ctx, false)
	if err != nil {
		return 0, nil, err
	}
	unfit = []string{}
	err = o.each(ctx, func(row alloc, problem error) {
		if problem != nil {
			unfit = append(unfit, unserved(row, problem))
			return
		}
		tags++
	})
	if err != nil {
		return 0, nil, s.explain(ctx, err)
	}
	return tags, unfit, nil
}

func unserved(row alloc, problem error) string { return fmt.Sprintf("%q: %v", row.BizTag, problem) }

// each reads the rows of the table, one after the other, without keeping them.
// problem says why a row cannot be served.
func (o *opened) each(ctx context.Context, f func(row alloc, problem error)) error {
	rows, err := o.db.NewSelect().Model((*alloc)(nil)).Column("biz_tag", "max_id", "step").Rows(ctx)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var row alloc
		if err := rows.Scan(&row.BizTag, &row.MaxID, &row.Step); err != nil {
			return err
		}
		f(row, cmp.Or(allocator.CheckTag(row.BizTag), row.check()))
	}
	return rows.Err()
}

// changed remembers a tag as it was read, and reports whether that is new.
func (s *Store) changed(t allocator.Tag) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := sight{t.Step, t.Floor, s.polls}
	before := s.known[t.Name]
	s.known[t.Name] = now
	return before.step != now.step || before.floor != now.floor
}

// vanished returns the tags that were known before the table was last read, and
// were not in it.
func (s *Store) vanished() (tags []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tag, k := range s.known {
		if k.poll != s.polls {
			tags = append(tags, tag)
		}
	}
	return tags
}

// drop forgets a tag that has vanished. It returns false if it was seen again
// since.
func (s *Store) drop(tag string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.known[tag]
	if !ok || k.poll == s.polls {
		return false
	}
	delete(s.known, tag)
	return true
}

// tombstones returns those of tags that are gone. The notes are read again: since
// they were read before the rows, a tag may have been deleted in between.
func (o *opened) tombstones(ctx context.Context, gone []string) (map[string]allocator.Tag, error) {
	if len(gone) == 0 {
		return nil, nil
	}
	notes, err := marks(ctx, o.db, nil)
	if err != nil {
		return nil, err
	}
	tombs := make(map[string]allocator.Tag, len(gone))
	for _, tag := range gone {
		tombs[tag] = allocator.Tag{Name: tag, MaxID: notes[tag].MaxID, Deleted: true}
	}
	return tombs, nil
}

// warn tells once which rows are not served, and why.
func (s *Store) warn(unfit []string) {
	s.mu.Lock()
	told := s.named
	s.named = true
	s.mu.Unlock()
	if told || len(unfit) == 0 {
		return
	}
	more := ""
	if n := len(unfit) - mostNamed; n > 0 {
		more = fmt.Sprintf("; and %d more", n)
		unfit = unfit[:mostNamed]
	}
	s.cfg.Log.Warn("rows of leaf_alloc are not served", "rows", strings.Join(unfit, "; ")+more)
}

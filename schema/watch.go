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

// Watch implements [allocator.Store]: it reads the table at intervals. It reports
// steps, floors, and tags that are gone. It does not report max_id, which moves
// with each reservation.
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

// read reads the table and reports all tags, or the changes since the last reading.
func (s *Store) read(ctx context.Context, all bool, f func(allocator.Tag)) error {
	o, err := s.database()
	if err != nil {
		return err
	}
	if err := s.readTable(ctx, o, all, f); err != nil {
		return s.lost(ctx, err)
	}
	s.found()
	return nil
}

func (s *Store) readTable(ctx context.Context, o *opened, all bool, f func(allocator.Tag)) error {
	s.mu.Lock()
	s.polls++ // a Reserve from now on may see newer rows than this reading
	s.mu.Unlock()

	o, err := s.check(ctx, o)
	if err != nil {
		return err
	}
	notes, err := marks(ctx, o.db, nil)
	if err != nil {
		return err
	}
	var unfit []string
	err = o.each(ctx, func(row alloc, problem error) {
		if problem != nil {
			unfit = append(unfit, problem.Error())
			row.Step = 0 // not to be used
		}
		if errors.Is(problem, allocator.ErrBadTag) {
			return
		}
		t := row.tag(notes[row.BizTag])
		delete(notes, row.BizTag)
		if changed := s.changed(t); (changed || all) && problem == nil {
			f(t)
		}
	})
	if err != nil {
		return err
	}
	if err := s.reportGone(ctx, o, notes, f); err != nil {
		return err
	}
	if all {
		for _, m := range notes {
			if m.MaxID > 0 {
				f(m.tombstone())
			}
		}
	}
	s.warnUnfit.Do(func() {
		if len(unfit) > 0 {
			s.cfg.Log.Warn("rows of the database are not served", "table", o.table, "rows", strings.Join(unfit[:min(len(unfit), mostNamed)], "; "), "count", len(unfit))
		}
	})
	return nil
}

// reportGone reports the tags that have vanished, and removes them from notes.
func (s *Store) reportGone(ctx context.Context, o *opened, notes map[string]mark, f func(allocator.Tag)) error {
	gone := s.vanished()
	if len(gone) == 0 {
		return nil
	}
	again, err := marks(ctx, o.db, nil) // a tag may have been deleted between the notes and the rows
	if err != nil {
		return err
	}
	created := make(map[string]bool) // since the rows were read: a tag without a row and without a mark may be a new one
	for _, tag := range gone {
		created[tag] = false
	}
	err = o.each(ctx, func(row alloc, _ error) {
		if _, isGone := created[row.BizTag]; isGone { // the table may have a million others
			created[row.BizTag] = true
		}
	})
	if err != nil {
		return err
	}
	for _, tag := range gone {
		delete(notes, tag)
		if !created[tag] && s.drop(tag) {
			f(mark{BizTag: tag, MaxID: again[tag].MaxID}.tombstone())
		}
	}
	return nil
}

// Floors implements [allocator.Store].
func (s *Store) Floors(ctx context.Context, f func(tag string, floor int64, rules allocator.Rules)) error {
	return s.Ends(ctx, func(tag string, _, floor int64) {
		if floor > 0 {
			f(tag, floor, allocator.Rules{}) // they are in the ledger
		}
	})
}

// Ends calls f with how far each tag was, and where operators moved it to, as far as the database knows,
// deleted tags included. It may call f twice for a tag: the higher numbers count. It leaves out names
// that cannot be served.
func (s *Store) Ends(ctx context.Context, f func(tag string, end, floor int64)) error {
	o, err := s.database()
	if err != nil {
		return err
	}
	// The marks come last: a tag that is deleted meanwhile has one.
	err = o.each(ctx, func(row alloc, problem error) {
		if !errors.Is(problem, allocator.ErrBadTag) {
			f(row.BizTag, max(row.MaxID, 1), 0)
		}
	})
	if err != nil {
		return s.explain(ctx, err)
	}
	notes, err := marks(ctx, o.db, nil)
	if err != nil {
		return s.explain(ctx, err)
	}
	for _, m := range notes {
		floor := max(m.Floor, m.MaxID)
		f(m.BizTag, max(floor, 1), floor)
	}
	return nil
}

// Check implements [allocator.Numbers]. Nothing is taken from a table that it found unfit.
func (s *Store) Check(ctx context.Context) error {
	o, err := s.database()
	if err != nil {
		return err
	}
	if _, err := s.check(ctx, o); err != nil {
		return s.lost(ctx, err)
	}
	s.found()
	return nil
}

func (s *Store) check(ctx context.Context, o *opened) (*opened, error) {
	if err := s.checkServer(ctx, o); err != nil {
		return nil, err
	}
	return s.checkTable(ctx, o)
}

// checkServer makes sure that the server has not become a replica, and the database
// still has its owner.
func (s *Store) checkServer(ctx context.Context, o *opened) error {
	var answer string
	if err := o.db.NewRaw(askReadOnly).Scan(ctx, &answer); err != nil {
		return err
	}
	return cmp.Or(writable(answer), s.checkOwner(ctx, o))
}

// checkTable looks whether the table of the tags was altered. Nothing is reserved from an unfit
// table until it is fit again.
func (s *Store) checkTable(ctx context.Context, o *opened) (*opened, error) {
	l, err := inspect(ctx, o.db, o.table)
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
	return o, nil
}

// changed remembers a tag as it was read, and reports whether it has changed.
func (s *Store) changed(t allocator.Tag) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.known[t.Name]
	s.known[t.Name] = knownTag{t.Step, t.Floor, s.polls}
	return before.step != t.Step || before.floor != t.Floor
}

// vanished returns the known tags that the last reading did not find.
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

// drop forgets a vanished tag. It returns false if the tag was seen again
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

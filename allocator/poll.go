package allocator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
)

const (
	// DefaultRefresh is how often the rows of the database are compared with the records.
	DefaultRefresh = time.Minute
	// rowsAtOnce bounds the tags that a poll compares at a time.
	rowsAtOnce = 16
	// fewRows is how many rows may vanish at once without a doubt about the table.
	fewRows = 10
	// goneFor is how long a row must have been gone at least: longer than a creation takes, which
	// writes the record first, and which a start repeats every few seconds.
	goneFor = 10 * time.Second
)

// poll keeps the rows of a database and the records equal. One generator does it for all; see
// [Config].Leads.
//
//	row    record                 what happens
//	there  none                   the record is made, above all that anybody knows (P1)
//	gone   there, for a while     leaf_mark keeps its end; the record becomes a tombstone (P2)
//	there  tombstone              alive again, above all that was in use (P3)
//	above  below, in two polls    the record rises to what the row was at first: SQL moved it (P4)
//	below  above                  the row is raised: the database went backwards (P5)
//	–      strict or opaque,      leaf_mark has its kind and how far it is: after a loss of the
//	       or a tombstone         records nobody can take a row of that name for a trend tag (P6)
//
// All that it finds while it reads may be old. So each tag in question is looked at again: the
// record first, then the row under its lock, then a compare-and-set on that record.
type poll struct {
	*follower
	polled atomic.Bool // the last comparison was a success

	// Of run.
	round   uint8
	ahead   map[string]int64     // P4: rows above their record in the last poll
	missing map[string]time.Time // P2: when the row of a record was first missed, in all polls since
	shadows map[string]bool      // P6: rows of strict and opaque tags
	doubted bool                 // so many rows were gone that nothing was removed
	warned  bool                 // of rows that cannot be served
}

// repeatLog is how often the log says again that polls fail. They are tried each second.
const repeatLog = time.Minute

// run polls until the allocator is closed.
func (p *poll) run() {
	p.ahead, p.missing, p.shadows = make(map[string]int64), make(map[string]time.Time), make(map[string]bool)
	var logged time.Time // when the log last said that it failed; zero: it does not
	for lost := false; ; {
		wait := p.cfg.Refresh
		ctx, cancel := context.WithTimeout(p.ctx, max(p.cfg.Refresh, attemptTimeout))
		err := p.cfg.Numbers.Check(ctx)
		// At the start the index does not have the records. Later it may have some that are lost by
		// now.
		gone := errors.Is(p.cfg.Records.Err(), ErrTagsLost)
		if err == nil && (!p.refreshed.Load() || gone && !lost) {
			if err = p.cfg.Index.refresh(func() error { return p.cfg.Records.Sync(ctx) }); err == nil {
				lost = gone
				p.refreshed.Store(true)
			}
		}
		if err != nil {
			wait = min(wait, lastPause) // a look is cheap, and to read all rows again is not
		}
		switch leads := p.cfg.Leads(); {
		case !leads: // two polls in a row count
			clear(p.ahead)
			clear(p.missing)
			p.shadow(nil)
			p.doubted = false
		case err == nil:
			err = p.once(p.ctx)
		}
		if err != nil { // while the database was away no creation could end
			clear(p.missing)
		}
		cancel()
		p.polled.Store(err == nil && !p.doubted)
		if err == nil {
			logged = time.Time{}
		} else if p.ctx.Err() == nil && time.Since(logged) >= repeatLog {
			logged = time.Now()
			p.cfg.Log.Warn("the rows of the database cannot be compared with the records; trying again", "error", err)
		}
		if !pause(p.ctx, wait, nil) {
			return
		}
	}
}

// Polled reports whether the last comparison with the database was a success, and found no reason
// to doubt the table.
func (a *Allocator) Polled() bool { return a.rows.polled.Load() }

// once compares all rows with the index, and then looks at the tags in question.
func (p *poll) once(ctx context.Context) error {
	p.round++
	index := p.cfg.Index
	var question, unknown []string
	ahead, shadows, rows := make(map[string]int64), make(map[string]bool), 0
	var damaged []string
	err := p.cfg.Numbers.Rows(ctx, func(r Row) {
		if errors.Is(r.Problem, idspace.ErrBadTag) {
			damaged = append(damaged, r.Name)
			return
		}
		e := index.polled(r.Name, p.round, r.MaxID != 0)
		known, isRow := e.revision != 0, r.MaxID != 0
		if known && isRow {
			rows++
		}
		if marked := e.order != indexedTrend || e.deleted && !isRow; known && marked {
			if r.Mark < e.end || r.Kind != e.order.kind() { // P6
				question = append(question, r.Name)
			}
		}
		switch {
		case !isRow:
		case known && e.order != indexedTrend:
			shadows[r.Name] = true
		case !known && (r.Problem != nil || r.Kind == KindStrict || r.Kind == KindOpaque):
			if r.Problem != nil {
				damaged = append(damaged, r.Name)
			}
		case !known:
			unknown = append(unknown, r.Name)
		case e.deleted, r.MaxID < e.end, r.Step != e.step:
			question = append(question, r.Name)
		case r.MaxID > e.end:
			ahead[r.Name] = r.MaxID
			if was, ok := p.ahead[r.Name]; ok && was > e.end {
				question = append(question, r.Name)
			}
		}
	})
	if err != nil {
		return err
	}
	gone, unmarked := index.unpolled(p.round)
	question = append(question, unmarked...)
	now, missing := time.Now(), make(map[string]time.Time)
	doubted := len(gone)+rows >= fewRows && len(gone) > rows
	if doubted && !p.doubted {
		p.cfg.Log.Error("more than half of the rows are gone from the database: was the table emptied or replaced? "+
			"No tag is added or removed while that lasts", "gone", len(gone), "left", rows)
	}
	if !doubted { // else what belongs to others would become tags, and end the doubt
		question = append(question, unknown...)
	}
	p.doubted = doubted
	for _, name := range gone {
		since, was := p.missing[name]
		if !was {
			since = now
		}
		missing[name] = since
		if now.Sub(since) >= goneFor && !doubted {
			question = append(question, name)
		}
	}
	p.warn(damaged)
	p.shadow(shadows)
	was := p.ahead
	p.ahead, p.missing = ahead, missing
	return p.all(ctx, question, was)
}

// warn logs the rows that cannot be served, once.
func (p *poll) warn(names []string) {
	if len(names) > 0 && !p.warned {
		p.warned = true
		p.cfg.Log.Warn("rows of the database are not served, because of their name or step (`leaf migrate` lists them)",
			"rows", names[:min(len(names), maxLogged)], "count", len(names))
	}
}

// shadow reports the rows with the names of strict and opaque tags, and when they are gone.
func (p *poll) shadow(now map[string]bool) {
	for name := range now {
		if !p.shadows[name] {
			p.cfg.Notify(Shadowed{name})
		}
	}
	for name := range p.shadows {
		if !now[name] {
			p.cfg.Notify(Recovered{name, "shadowed"})
		}
	}
	p.shadows = now
}

// all looks at the tags in question, some at a time.
func (p *poll) all(ctx context.Context, names []string, ahead map[string]int64) error {
	slices.Sort(names)
	names = slices.Compact(names)
	var failed atomic.Pointer[error]
	each(len(names), rowsAtOnce, func(i int) {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		err := p.settle(ctx, names[i], ahead[names[i]])
		if errors.Is(err, ErrUnavailable) { // any other error is about this tag alone; the next poll looks at it again
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// each calls f with each number below n, so many at a time, and waits for all.
func each(n, atOnce int, f func(i int)) {
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	all.Wait()
}

// settle makes the row and the record of a tag equal. ahead is how far the row was above the record
// in the last poll; 0: it was not.
func (p *poll) settle(ctx context.Context, name string, ahead int64) error {
	s, err := p.claims.load(ctx, name)
	if err == nil && s.Revision == 0 { // P1
		_, err = p.claims.adopt(ctx, name)
		return err
	}
	if err != nil {
		return err
	}
	end := max(s.MaxID, p.cfg.Index.End(name)) // before the row is read: claims move the row first
	row, err := p.cfg.Numbers.Peek(ctx, name)
	if err != nil {
		return err
	}
	t := s.Tag
	switch {
	case s.Order != Trend: // P6
		return p.cfg.Numbers.Mark(ctx, name, end, s.Kind())
	case s.Deleted && row.MaxID == 0: // P6
		return p.cfg.Numbers.Mark(ctx, name, end, KindTrend)
	case row.MaxID == 0: // P2
		// Nothing is removed: SQL may have made the row again.
		if err := p.cfg.Numbers.Mark(ctx, name, end, KindTrend); err != nil {
			return err
		}
		if t, err = s.Delete(end); err != nil {
			return err
		}
	case row.Problem != nil:
		return row.Problem
	case s.Deleted: // P3
		end = max(end, row.MaxID, row.Mark)
		t = t.Rise(end, end)
		t.Deleted, t.Step, t.Updated = false, row.Step, Now()
	default:
		if row.MaxID < end { // P5: the claims are in the record, and the database has forgotten them
			if err := p.cfg.Numbers.Raise(ctx, name, end, nil, nil); err != nil {
				return err
			}
			p.cfg.Log.Warn("the database went backwards: max_id is raised, and service goes on",
				"tag", name, "was", row.MaxID, "now", end)
			p.cfg.Notify(Regressed{Tag: name, Got: row.MaxID, Seen: end, Action: Advanced})
			p.cfg.Notify(Recovered{name, "regressed"})
		}
		t = t.Rise(min(ahead, row.MaxID), 0) // P4
		t.Step = row.Step
	}
	if t == s.Tag {
		return nil
	}
	made, err := p.claims.swap(ctx, t, s.Revision)
	if err != nil {
		return err
	}
	p.reconcile(Update{Stored: made}, true)
	p.cfg.Push(made)
	return nil
}

package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// claimFresh is how old the reading of a record may be when a claim is based on it. If the process
// stood still for longer, the record is read again: after a restore of the ledger its revisions
// count anew, and an old one may mean another record.
const claimFresh = time.Second

// claimed is a store whose ranges are claimed in a ledger.
type claimed struct {
	Store
	ledger Ledger
	marks  *Marks
}

// WithLedger returns the tags of the store, each range of which is claimed in the ledger before
// Reserve returns it. What operators do is claimed too: a new tag, a new max_id and a deletion
// claim all IDs below. The store comes first, then the ledger, so the ledger is never ahead of a
// store that is well. Marks are those of the [Config] in which the result is used.
//
// Healthy generators may claim in another order than they reserved. The range that comes too late
// is lost. With 2, 3 and 8 generators that refill one tag without a pause, this happens to 3, 5
// and 9 % of the ranges, and hardly ever otherwise. To keep such ranges, the ledger would have to
// remember gaps, and a store that went backwards could offer one of those.
func WithLedger(store Store, ledger Ledger, marks *Marks) Store {
	return &claimed{store, ledger, marks}
}

// Reserve implements [Store]. It reads the ledger first: while the ledger is unavailable, nothing is
// reserved.
func (c *claimed) Reserve(ctx context.Context, tag string, n, from int64) (Grant, error) {
	e, err := c.ledger.Read(ctx, tag)
	if err != nil {
		return Grant{}, err
	}
	read := time.Now()
	from = max(from, e.End)
	grant, err := c.Store.Reserve(ctx, tag, n, from)
	if err != nil {
		return Grant{}, err
	}
	if err := grant.check(from); err != nil {
		return Grant{}, err
	}
	if err := c.claim(ctx, tag, grant.Range, e, read); err != nil {
		return Grant{}, err
	}
	return grant, nil
}

// errTooLate: another generator has claimed IDs above the range. Nothing is wrong.
var errTooLate = fmt.Errorf("%w: another generator claimed a later range first, so this one is lost", ErrConflict)

// claim claims r, given the tag's entry and when it was read. It writes again only after a certain conflict.
func (c *claimed) claim(ctx context.Context, tag string, r Range, e Entry, read time.Time) (err error) {
	for wait := firstRace; ; wait = min(2*wait, lastRace) {
		if now := time.Now(); errors.Is(err, ErrConflict) || apart(now, read) > claimFresh {
			if e, err = c.ledger.Read(ctx, tag); err != nil {
				return err
			}
			read = now
		}
		// A peer's report, too, shows a later claim: the ledger itself may have gone backwards.
		if r.First < max(e.End, c.marks.End(tag)) {
			return errTooLate
		}
		e.End = r.Last + 1
		err = c.ledger.Write(ctx, tag, e)
		if !errors.Is(err, ErrConflict) || !pause(ctx, rand.N(wait), nil) {
			return err
		}
	}
}

// apart is the time from then to now. The monotonic clock stops while a machine sleeps, so the
// longer time of both clocks counts.
func apart(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// raise moves the entry of a tag up to end and floor. The store has changed already, so its error
// matches ErrUncertain.
func (c *claimed) raise(ctx context.Context, tag string, end, floor int64) error {
	_, err := Raise(ctx, c.ledger, tag, end, floor)
	if err != nil {
		return fmt.Errorf("%w: the ledger: %w", ErrUncertain, err)
	}
	return nil
}

// Raise moves the entry of a tag up to end and floor, never down, and reports whether that changed
// anything. It is safe to repeat.
func Raise(ctx context.Context, l Ledger, tag string, end, floor int64) (changed bool, err error) {
	for wait := firstRace; ; wait = min(2*wait, lastRace) {
		e, err := l.Read(ctx, tag)
		if err != nil {
			return false, err
		}
		if e.Revision > 0 && e.End >= end && e.Floor >= floor {
			return false, nil
		}
		e.End, e.Floor = max(e.End, end), max(e.Floor, floor)
		err = l.Write(ctx, tag, e)
		if !errors.Is(err, ErrConflict) || !pause(ctx, rand.N(wait), nil) {
			return err == nil, err
		}
	}
}

// Get implements [Store]. It returns the max_id of the ledger if that is above.
func (c *claimed) Get(ctx context.Context, tag string) (Tag, error) {
	t, err := c.Store.Get(ctx, tag)
	if err != nil {
		return t, err
	}
	e, err := c.ledger.Read(ctx, tag)
	t.MaxID = max(t.MaxID, e.End)
	return t, err
}

// Create implements [Store].
func (c *claimed) Create(ctx context.Context, tag Tag) (Tag, error) {
	e, err := c.ledger.Read(ctx, tag.Name)
	if err != nil {
		return Tag{}, err
	}
	tag.MaxID = max(tag.MaxID, e.End)
	t, err := c.Store.Create(ctx, tag)
	if err != nil {
		return t, err
	}
	return t, c.raise(ctx, t.Name, t.MaxID, t.Floor)
}

// Update implements [Store].
func (c *claimed) Update(ctx context.Context, tag string, change Change) (Tag, error) {
	if change.MaxID == nil {
		return c.Store.Update(ctx, tag, change)
	}
	e, err := c.ledger.Read(ctx, tag)
	if err != nil {
		return Tag{}, err
	}
	if _, err := (Tag{MaxID: e.End, Floor: e.Floor}).With(Change{MaxID: change.MaxID}); err != nil {
		return Tag{}, err
	}
	t, err := c.Store.Update(ctx, tag, change)
	if err != nil {
		return t, err
	}
	return t, c.raise(ctx, tag, t.MaxID, t.Floor)
}

// Delete implements [Store].
func (c *claimed) Delete(ctx context.Context, tag string, from int64) (Tag, error) {
	e, err := c.ledger.Read(ctx, tag)
	if err != nil {
		return Tag{}, err
	}
	t, err := c.Store.Delete(ctx, tag, max(from, e.End))
	if err != nil {
		return t, err
	}
	return t, c.raise(ctx, tag, t.MaxID, t.MaxID)
}

// Floors implements [Store].
func (c *claimed) Floors(ctx context.Context, f func(tag string, floor int64)) error {
	return c.ledger.Each(ctx, func(tag string, e Entry) {
		if e.Floor > 0 {
			f(tag, e.Floor)
		}
	})
}

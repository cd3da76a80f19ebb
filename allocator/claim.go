package allocator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// claimFresh is how long ago a record may have been read or written when a claim is based on it. After
// that it is read again, before anything is reserved: while the ledger is unavailable nothing should be.
// Also, a ledger that was restored counts its revisions from a lower number, and an old one may mean another record.
const claimFresh = 100 * time.Millisecond

// raiseFresh is the same for what operators do.
const raiseFresh = time.Second

// A range above the ledger's end shows that another generator reserved the IDs between and is about
// to claim them. For up to claimTurn that generator goes first, else its range would be lost. The record is
// read again after firstTurn, then after twice as long, up to lastTurn.
const (
	claimTurn = 25 * time.Millisecond
	firstTurn = 100 * time.Microsecond
	lastTurn  = time.Millisecond
)

// maxKnown is how many records are remembered at least before those that are not fresh are forgotten.
const maxKnown = 1000

// claimed is a store whose ranges are claimed in a ledger.
type claimed struct {
	Store
	ledger Ledger
	marks  *Marks

	mu      sync.Mutex // never held across I/O
	latest  map[string]known
	sweepAt int // how many records make the next one forget those that are not fresh
}

// known is the record of a tag as it was read or written last.
type known struct {
	Entry
	at time.Time
}

// WithLedger returns the tags of the store, each range of which is claimed in the ledger before
// Reserve returns it. What operators do is claimed too: a new tag, a new max_id and a deletion
// claim all IDs below. The store comes first, then the ledger, so the ledger is never ahead of a
// store that is well. Marks are those of the [Config] in which the result is used.
//
// Generators claim in the order in which they reserved: one whose range lies above the ledger's end waits
// for the one before it, for up to claimTurn. A range that comes too late is lost. To keep it, the
// ledger would have to remember gaps, and a store that went backwards could offer one of those.
func WithLedger(store Store, ledger Ledger, marks *Marks) Store {
	return &claimed{Store: store, ledger: ledger, marks: marks, latest: make(map[string]known)}
}

// Reserve implements [Store].
func (c *claimed) Reserve(ctx context.Context, tag string, n, from int64) (Grant, error) {
	e, err := c.record(ctx, tag)
	if err != nil {
		return Grant{}, err
	}
	from = max(from, e.End)
	grant, err := c.Store.Reserve(ctx, tag, n, from)
	if err != nil {
		return Grant{}, err
	}
	if err := grant.check(from); err != nil {
		return Grant{}, err
	}
	if err := c.claim(ctx, tag, grant.Range); err != nil {
		return Grant{}, err
	}
	return grant, nil
}

// record returns the record of a tag, which it reads if it is not fresh.
func (c *claimed) record(ctx context.Context, tag string) (Entry, error) {
	c.mu.Lock()
	k, ok := c.latest[tag]
	c.mu.Unlock()
	if ok && apart(time.Now(), k.at) <= claimFresh {
		return k.Entry, nil
	}
	k.at = time.Now()
	var err error
	if k.Entry, err = c.ledger.Read(ctx, tag); err == nil {
		c.remember(tag, k)
	}
	return k.Entry, err
}

// remember notes a record, or that it is not known any more.
func (c *claimed) remember(tag string, k known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.at.IsZero() {
		delete(c.latest, tag)
		return
	}
	if len(c.latest) >= c.sweepAt {
		maps.DeleteFunc(c.latest, func(_ string, old known) bool { return apart(k.at, old.at) > claimFresh })
		c.sweepAt = max(maxKnown, 2*len(c.latest))
	}
	c.latest[tag] = k
}

// errTooLate: another generator has claimed IDs above the range. Nothing is wrong.
var errTooLate = fmt.Errorf("%w: another generator claimed a later range first, so this one is lost", ErrConflict)

// claim claims r. It writes again only after a certain conflict, on the record as it is then.
func (c *claimed) claim(ctx context.Context, tag string, r Range) error {
	turn, conflict := firstTurn, time.Duration(0)
	for begun := time.Now(); ; {
		e, err := c.record(ctx, tag)
		if err != nil {
			return err
		}
		// A peer's report, too, shows a later claim: the ledger itself may have gone backwards.
		if r.First < max(e.End, c.marks.End(tag)) {
			return errTooLate
		}
		if e.Revision > 0 && e.End < r.First && time.Since(begun) < claimTurn {
			c.remember(tag, known{})
			pause(ctx, turn, nil)
			turn = min(2*turn, lastTurn)
			continue
		}
		e.End = r.Last + 1
		k := known{e, time.Now()}
		if k.Revision, err = c.ledger.Write(ctx, tag, e); err == nil {
			c.remember(tag, k)
			return nil
		}
		c.remember(tag, known{})
		if !errors.Is(err, ErrConflict) || conflict > 0 && !pause(ctx, rand.N(conflict), nil) {
			return err
		}
		conflict = min(max(2*conflict, firstRace), lastRace)
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
		read := time.Now()
		e, err := l.Read(ctx, tag)
		if err != nil {
			return false, err
		}
		if apart(time.Now(), read) > raiseFresh {
			continue // this process may have stood still
		}
		if e.Revision > 0 && e.End >= end && e.Floor >= floor {
			return false, nil
		}
		e.End, e.Floor = max(e.End, end), max(e.Floor, floor)
		_, err = l.Write(ctx, tag, e)
		if !errors.Is(err, ErrConflict) || !pause(ctx, rand.N(wait), nil) {
			return err == nil, err
		}
	}
}

// Get implements [Store]. It returns the max_id of the ledger if that is above. A Floor above the store's own
// max_id is from before the store went backwards: no operator has looked since.
func (c *claimed) Get(ctx context.Context, tag string) (Tag, error) {
	t, err := c.Store.Get(ctx, tag)
	if err != nil {
		return t, err
	}
	e, err := c.ledger.Read(ctx, tag)
	t.Floor = min(t.Floor, t.MaxID)
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
	floor := *change.MaxID
	if _, err := (Tag{MaxID: e.End, Floor: e.Floor}).With(Change{MaxID: &floor}); err != nil {
		// An earlier attempt may have reached the store alone, and ranges above were claimed since.
		if t, failed := c.Store.Get(ctx, tag); failed != nil || t.Floor != floor || e.Floor >= floor {
			return Tag{}, err
		}
		change.MaxID = nil
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

package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/internal/fresh"
)

// raiseFresh is how long ago a record may have been read when what an operator does is written; see [fresh.For].
const raiseFresh = time.Second

// A range above the ledger's end shows that another generator reserved the IDs between and is about
// to claim them. For up to claimTurn that generator goes first, else its range would be lost. The record is
// read again after firstTurn, then after twice as long, up to lastTurn.
const (
	claimTurn = 25 * time.Millisecond
	firstTurn = 100 * time.Microsecond
	lastTurn  = time.Millisecond
)

// claimed is a store whose ranges are claimed in a ledger.
type claimed struct {
	Store
	ledger Ledger
	marks  *Marks
	node   string

	latest fresh.Records[Entry]
}

// WithLedger returns the tags of the store, each range of which is claimed in the ledger before
// Reserve returns it. A change by an operator is claimed too: a new tag, a new max_id and a deletion
// claim all IDs below. The store is written first, then the ledger. So the ledger is ahead of the store
// only if the store went backwards. Marks are those of the [Config] in which the result is used. node is
// the name of the generator for [Entry.Last].
//
// Generators claim in the order in which they reserved. If there is a range between the ledger's end and its
// own, a generator waits for the claim of that range, for up to claimTurn. A claim that comes too late fails,
// and its range is lost. To accept it, the ledger would have to remember gaps, and a store that went backwards
// could offer one of those.
func WithLedger(store Store, ledger Ledger, marks *Marks, node string) Store {
	return &claimed{Store: store, ledger: ledger, marks: marks, node: node}
}

// Reserve implements [Store].
func (c *claimed) Reserve(ctx context.Context, tag string, n, from int64) (Grant, error) {
	e, err := c.record(ctx, tag)
	if err == nil && e.allows(tag, e.End, n) != nil { // a refusal must not rest on a record from before an operator's change
		c.latest.Forget(tag)
		e, err = c.record(ctx, tag)
	}
	if err == nil {
		err = e.allows(tag, e.End, n)
	}
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
	if err := c.claim(ctx, tag, &grant); err != nil {
		return Grant{}, err
	}
	return grant, nil
}

// allows is the error if the rules refuse n IDs from next on.
func (e Entry) allows(tag string, next, n int64) error {
	if e.Rules.Paused {
		return &PausedError{e.Rules}
	}
	if left := e.Rules.Left(next); left < n {
		return fmt.Errorf("%w: %s has %d IDs left up to its limit", ErrExhausted, tag, left)
	}
	return nil
}

// record returns the record of a tag, which it reads if it is not fresh.
func (c *claimed) record(ctx context.Context, tag string) (Entry, error) {
	if e, ok := c.latest.Get(tag); ok {
		return e, nil
	}
	at := time.Now()
	e, err := readTrend(ctx, c.ledger, tag)
	if err == nil {
		c.latest.Put(tag, e, at)
	}
	return e, err
}

// readTrend reads the record of a tag of trend order. The error of another one is ErrApart.
func readTrend(ctx context.Context, l Ledger, tag string) (Entry, error) {
	e, err := l.Read(ctx, tag)
	if err == nil && e.Order != Trend {
		err = fmt.Errorf("%s: %w", tag, OrderConflict(e.Order))
	}
	return e, err
}

// errTooLate: another generator has claimed IDs above the range. Nothing is wrong.
var errTooLate = fmt.Errorf("%w: another generator claimed a later range first, so this one is lost", ErrConflict)

// claim claims the range of g, up to the tag's limit. It writes again only after a certain conflict, on the record as it is then.
func (c *claimed) claim(ctx context.Context, tag string, g *Grant) error {
	r, last := &g.Range, g.Last
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
			c.latest.Forget(tag)
			pause(ctx, turn, nil)
			turn = min(2*turn, lastTurn)
			continue
		}
		if err := e.allows(tag, r.First, 1); err != nil {
			return err
		}
		r.Last = min(last, e.Rules.end()-1)
		g.Rules, g.Ending = e.Rules, !e.Rules.Ending(e.End) && e.Rules.Ending(r.Last+1)
		e.End, e.Last = r.Last+1, NewClaim(*r, c.node)
		at := time.Now()
		if e.Revision, err = c.ledger.Write(ctx, tag, e); err == nil {
			c.latest.Put(tag, e, at)
			return nil
		}
		c.latest.Forget(tag)
		if !errors.Is(err, ErrConflict) || conflict > 0 && !pause(ctx, rand.N(conflict), nil) {
			return err
		}
		conflict = min(max(2*conflict, firstRace), lastRace)
	}
}

// raise moves the entry of a tag up to end and floor, and lets rules change its rules. It returns the new rules. The store may have
// changed already, so its error matches ErrUncertain.
func (c *claimed) raise(ctx context.Context, tag string, end, floor int64, rules func(Rules) (Rules, error)) (made Rules, err error) {
	_, err = amend(ctx, c.ledger, tag, func(e *Entry) error {
		e.End, e.Floor = max(e.End, end), max(e.Floor, floor)
		made, err = rules(e.Rules)
		e.Rules = made
		return err
	})
	if err != nil && !errors.Is(err, ErrApart) {
		return made, fmt.Errorf("%w: the ledger: %w", ErrUncertain, err)
	}
	return made, err
}

// Raise moves the entry of a tag up to end and floor, never down, and reports whether that changed
// anything. It is safe to repeat.
func Raise(ctx context.Context, l Ledger, tag string, end, floor int64) (changed bool, err error) {
	return amend(ctx, l, tag, func(e *Entry) error {
		e.End, e.Floor = max(e.End, end), max(e.Floor, floor)
		return nil
	})
}

// amend lets f change the entry of a tag, and reports whether that changed anything. It may call f several times.
func amend(ctx context.Context, l Ledger, tag string, f func(*Entry) error) (changed bool, err error) {
	for wait := firstRace; ; wait = min(2*wait, lastRace) {
		read := time.Now()
		e, err := readTrend(ctx, l, tag)
		if err != nil {
			return false, err
		}
		if fresh.Apart(time.Now(), read) > raiseFresh {
			continue // this process may have stood still
		}
		was := e
		if err := f(&e); err != nil {
			return false, err
		}
		if e.Revision > 0 && e == was {
			return false, nil
		}
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
	e, err := readTrend(ctx, c.ledger, tag)
	t.Floor = min(t.Floor, t.MaxID)
	t.MaxID, t.Rules = max(t.MaxID, e.End), e.Rules
	return t, err
}

// maxReads bounds the records of the ledger that are read at once.
const maxReads = 32

// List implements [Store]. It reads the rules of each tag from the ledger.
func (c *claimed) List(ctx context.Context, q Query) ([]Tag, error) {
	tags, err := c.Store.List(ctx, q)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, min(maxReads, len(tags)))
	for i := range errs {
		wg.Go(func() {
			for at := next.Add(1) - 1; at < int64(len(tags)) && errs[i] == nil; at = next.Add(1) - 1 {
				e, err := readTrend(ctx, c.ledger, tags[at].Name)
				if err != nil && !errors.Is(err, ErrApart) && !errors.Is(err, ErrDamaged) { // [Ordered] leaves it out; it is not served
					errs[i] = err
				}
				tags[at].Rules = e.Rules
			}
		})
	}
	wg.Wait()
	return tags, errors.Join(errs...)
}

// Create implements [Store].
func (c *claimed) Create(ctx context.Context, tag Tag) (Tag, error) {
	if tag.Order != Trend {
		return Tag{}, fmt.Errorf("%w: the database keeps no strict and no opaque tags", ErrBadValue)
	}
	e, err := readTrend(ctx, c.ledger, tag.Name)
	if err != nil {
		return Tag{}, err
	}
	tag.MaxID = max(tag.MaxID, e.End)
	t, err := c.Store.Create(ctx, tag)
	if err != nil {
		return t, err
	}
	t.Rules, err = c.raise(ctx, t.Name, t.MaxID, t.Floor, func(old Rules) (Rules, error) {
		return tag.Rules.After(old), nil
	})
	return t, err
}

// Update implements [Store].
func (c *claimed) Update(ctx context.Context, tag string, change Change) (Tag, error) {
	e, err := readTrend(ctx, c.ledger, tag)
	if err != nil {
		return Tag{}, err
	}
	t, err := c.Store.Get(ctx, tag)
	if err != nil {
		return t, err
	}
	t.Rules = e.Rules
	if _, err := t.With(Change{Step: change.Step, RulesChange: change.RulesChange}); err != nil {
		return Tag{}, err
	}
	rules := change.RulesChange
	change.RulesChange = RulesChange{}
	moves := change.MaxID != nil
	if moves {
		floor := *change.MaxID
		if _, err := (Tag{MaxID: e.End, Floor: e.Floor}).With(Change{MaxID: &floor}); err != nil {
			// An earlier attempt may have reached the store alone, and ranges above were claimed since.
			if t.Floor != floor || e.Floor >= floor {
				return Tag{}, err
			}
			change.MaxID = nil
		}
	}
	if moves || change != (Change{}) {
		if t, err = c.Store.Update(ctx, tag, change); err != nil {
			return t, err
		}
	}
	end, floor := int64(0), int64(0)
	switch {
	case moves:
		end, floor = t.MaxID, t.Floor
	case e.Revision == 0: // SQL made the row; a record has the end of all that was reserved
		end = t.MaxID
	}
	if !moves && rules == (RulesChange{}) {
		t.Rules = e.Rules
		return t, nil
	}
	t.Rules, err = c.raise(ctx, tag, end, floor, func(old Rules) (Rules, error) { return old.With(rules) })
	if !moves { // as Get
		t.Floor = min(t.Floor, t.MaxID)
		t.MaxID = max(t.MaxID, e.End)
	}
	return t, err
}

// Delete implements [Store].
func (c *claimed) Delete(ctx context.Context, tag string, from int64) (Tag, error) {
	e, err := readTrend(ctx, c.ledger, tag)
	if err != nil {
		return Tag{}, err
	}
	t, err := c.Store.Delete(ctx, tag, max(from, e.End))
	if err != nil {
		return t, err
	}
	t.Rules, err = c.raise(ctx, tag, t.MaxID, t.MaxID, func(old Rules) (Rules, error) { return old, nil })
	return t, err
}

// Floors implements [Store].
func (c *claimed) Floors(ctx context.Context, f func(tag string, floor int64, rules Rules)) error {
	return c.ledger.Each(ctx, func(tag string, e Entry) {
		if e.Floor > 0 || e.Rules.Version > 0 {
			f(tag, e.Floor, e.Rules)
		}
	})
}

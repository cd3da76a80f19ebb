package allocator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
)

const (
	// maxLoads bounds the records of a list that are read at once.
	maxLoads = 16
	// changeFresh is how long ago a record may have been read when what an operator does is
	// written. After that it is read again, and must be the same: it may have been set back, and
	// its revision may be that of another record.
	changeFresh = time.Second
)

// admin is what operators do with tags, and how they are listed. Its methods are those of the
// [Allocator] that has it.
type admin struct {
	*follower
	listed atomic.Bool // the watch has brought all records once
}

// Get returns the record of a tag. A tag that has only a row in the database gets its record.
// Errors: ErrUnknownTag, as ErrDeleted of a deleted tag, ErrDamaged, ErrNewer.
func (a *admin) Get(ctx context.Context, tag string) (Stored, error) {
	s, err := a.claims.load(ctx, tag)
	if err == nil && s.Revision == 0 {
		s, err = a.claims.adopt(ctx, tag)
	}
	if err == nil {
		err = s.present()
	}
	return s, err
}

// Load returns the record of a tag as it is, that of a deleted one too. Its Revision is 0 if there
// is none.
func (a *admin) Load(ctx context.Context, tag string) (Stored, error) {
	return a.cfg.Records.Load(ctx, tag)
}

// List returns the tags that a query asks for, in the order of bytes, without tombstones. A tag
// whose record cannot be used has only its name. It waits until the watch has brought all records
// once.
func (a *admin) List(ctx context.Context, q Query) ([]Tag, error) {
	if !a.listed.Load() {
		if err := a.cfg.Records.Sync(ctx); err != nil {
			return nil, fmt.Errorf("%w: the tags are not all known yet: %w", ErrUnavailable, err)
		}
		a.listed.Store(true)
	}
	var tags []Tag
	for len(tags) < q.Limit {
		page := q
		page.Limit = q.Limit - len(tags)
		names, next := a.cfg.Index.names(page)
		loaded, err := a.loadAll(ctx, names)
		if err != nil {
			return nil, err
		}
		tags = append(tags, loaded...)
		if next == "" {
			break
		}
		q.After = next
	}
	return tags, nil
}

// loadAll reads the records of these names, without those that are gone by now.
func (a *admin) loadAll(ctx context.Context, names []string) ([]Tag, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	tags := make([]Tag, len(names))
	each(len(names), maxLoads, func(i int) {
		s, err := a.cfg.Records.Load(ctx, names[i])
		switch {
		case errors.Is(err, ErrDamaged), errors.Is(err, ErrNewer):
			tags[i] = Tag{Name: names[i]}
		case err != nil:
			fail(err)
		case s.present() == nil:
			tags[i] = s.Tag
		}
	})
	return slices.DeleteFunc(tags, func(t Tag) bool { return t.Name == "" }), context.Cause(ctx)
}

// Create adds a tag, above all that any generator that is heard, or the database, knows to be in
// use of the name, and at least at seen. With onlyNew it adds none that was in use. A max_id above
// 1 says that all IDs below are in use; then a damaged record is replaced. Errors: ErrExists;
// ErrConflict if the name has or had another kind, or its record is lost; idspace.ErrBadValue,
// ErrTagsLost; ErrUncertain if it may have happened.
func (a *admin) Create(ctx context.Context, t Tag, seen int64, onlyNew bool) (Stored, error) {
	explicit := t.MaxID > 1
	if lost := a.cfg.Records.Err(); lost != nil && (!explicit || !errors.Is(lost, ErrTagsLost)) {
		return Stored{}, lost
	}
	var asked bool
	var others Known
	return a.amend(ctx, t.Name, func(s Stored, damage error) (Tag, error) {
		if damage != nil && (!explicit || errors.Is(damage, ErrNewer)) { // how far the tag was is not known
			return s.Tag, damage
		}
		if (s.present() != nil || damage != nil) && !asked { // a tombstone may have been set back
			var err error
			if others, err = a.cfg.Ask(ctx, t.Name); err != nil {
				return s.Tag, err
			}
			asked = true
			return s.Tag, errAgain // the answers took their time, and another creation may have been faster
		}
		known := others.Merge(a.Known(t.Name))
		known.End = max(known.End, seen)
		if (s.Revision == 0 || damage != nil) && known.Order != Trend && known.Order != t.Order {
			return s.Tag, fmt.Errorf("%s: %w", t.Name, orderConflict(known.Order))
		}
		if s.Revision == 0 && known.End > 0 && !explicit && (t.Order == Strict || onlyNew) {
			return s.Tag, inUseBefore(t.Name, known.End)
		}
		if damage != nil {
			s.Tag = Tag{Order: t.Order, Deleted: true}
		}
		row, err := a.mayHave(ctx, t, s)
		if err != nil {
			return s.Tag, err
		}
		known.End = max(known.End, row.Mark)
		made, err := s.Create(t, known.End)
		if errors.Is(err, ErrExists) && row.MaxID == 0 {
			err = cmp.Or(a.Complete(ctx, s.Tag), err)
		}
		if err == nil && t.Order.Domain() != "" {
			made.KeyID, err = a.keyFor(ctx, t, s, known, explicit)
		}
		made.Rules = made.Rules.After(known.Rules) // a generator may remember those of an earlier record
		return made, err
	}, func(made Tag) error { return a.addRow(ctx, made) })
}

// Complete makes the row of a tag that has none: its creation may have ended before. Errors:
// ErrUncertain.
func (a *admin) Complete(ctx context.Context, t Tag) error {
	if t.Order != Trend || a.cfg.Numbers == nil {
		return nil
	}
	row, err := a.cfg.Numbers.Peek(ctx, t.Name)
	if err == nil && row.MaxID == 0 {
		var known Known
		if known, err = a.cfg.Ask(ctx, t.Name); err == nil { // the record may have been set back
			end := max(t.MaxID, row.Mark, known.End, a.Seen(t.Name))
			err = a.cfg.Numbers.Add(ctx, Row{Name: t.Name, MaxID: end, Step: t.Step, Description: t.Description})
		}
	}
	if err == nil || errors.Is(err, ErrExists) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

// keyFor returns the ID of the key of a new opaque tag. A name has one key in each domain, so it
// must keep its domain.
func (a *admin) keyFor(ctx context.Context, t Tag, s Stored, known Known, explicit bool) (string, error) {
	used := s.KeyID == "" && known.End > 1
	switch {
	case s.KeyID != "":
		return s.KeyID, a.cfg.Keys.Load(ctx, s.Tag)
	case used && known.Order == Trend && !explicit:
		return "", inUseBefore(t.Name, known.End)
	}
	return a.cfg.Keys.Make(ctx, t, func(ctx context.Context) (sign string, err error) {
		if used {
			return fmt.Sprintf("IDs of %s were handed out before", t.Name), nil
		}
		return a.opaqueBefore(ctx)
	})
}

// opaqueBefore says what shows that there are, or were, opaque tags; empty: nothing.
func (a *admin) opaqueBefore(ctx context.Context) (sign string, err error) {
	if err = a.cfg.Records.Err(); err == nil {
		err = a.cfg.Records.Sync(ctx)
	}
	if err != nil {
		return "", err
	}
	if sign = a.cfg.Index.opaqueBefore(); sign == "" && a.cfg.Numbers != nil {
		err = a.cfg.Numbers.Rows(ctx, func(r Row) {
			if r.Kind == KindOpaque {
				sign = fmt.Sprintf("the database has a mark of the opaque tag %s", r.Name)
			}
		})
	}
	return sign, err
}

// addRow makes the row of a new tag. If the database refuses it for good, the record becomes a
// tombstone: nothing was handed out.
func (a *admin) addRow(ctx context.Context, t Tag) error {
	switch {
	case a.cfg.Numbers == nil:
		return nil
	case t.Order != Trend: // the poll repeats what fails here
		_ = a.cfg.Numbers.Mark(ctx, t.Name, t.MaxID, t.Kind())
		return nil
	}
	err := a.cfg.Numbers.Add(ctx, Row{Name: t.Name, MaxID: t.MaxID, Step: t.Step, Description: t.Description})
	if errors.Is(err, ErrExists) { // SQL made it meanwhile, or the database takes another name for it
		if raised := a.cfg.Numbers.Raise(ctx, t.Name, t.MaxID, &t.Step, nil); !errors.Is(raised, ErrUnknownTag) {
			err = raised
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrExists), errors.Is(err, idspace.ErrBadValue):
		_, undo := a.amend(ctx, t.Name, func(s Stored, _ error) (Tag, error) { return s.Delete(0) }, nil)
		return errors.Join(err, undo)
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

// mayHave returns what the database has of a name. If that is a tag of another kind it is an error.
func (a *admin) mayHave(ctx context.Context, t Tag, s Stored) (row Row, err error) {
	if a.cfg.Numbers == nil {
		return row, nil
	}
	row, err = a.cfg.Numbers.Peek(ctx, t.Name)
	switch {
	case errors.Is(err, ErrUnavailable) && t.Order != Trend && s.Revision != 0: // the record says enough
		return Row{}, nil
	case err != nil:
		return row, err
	case row.MaxID != 0 && t.Order == Trend && s.Revision == 0:
		return row, fmt.Errorf("%w: %s", ErrExists, t.Name)
	case row.MaxID != 0 && t.Order != Trend:
		return row, fmt.Errorf("%s: %w", t.Name, orderConflict(Trend))
	case row.Kind != "" && row.Kind != t.Kind():
		return row, fmt.Errorf("%w: %s is, or was, of kind %s, for life: create it as such, or choose another name",
			ErrConflict, t.Name, row.Kind)
	}
	return row, nil
}

// Change changes a tag. A new max_id becomes the record's Floor. Errors: ErrUnknownTag; ErrConflict
// for a max_id below the present one; idspace.ErrBadValue; ErrUncertain if it may have happened.
// Without force it refuses what looks like a typo, see [Tag.CheckLoss].
func (a *admin) Change(ctx context.Context, tag string, c Change, force bool) (was Tag, is Stored, err error) {
	is, err = a.amend(ctx, tag, func(s Stored, damage error) (Tag, error) {
		if err := a.there(ctx, tag, s, damage); err != nil {
			return s.Tag, err
		}
		if err := s.present(); err == nil && !force {
			if err := s.CheckLoss(c); err != nil {
				return s.Tag, err
			}
		}
		// The records were set back: else nobody would obey the change.
		if _, rules := a.Forbids(tag); rules.Version > s.Version {
			s.Rules = rules
		}
		was = s.Tag
		t, err := s.Change(c)
		if err != nil || a.cfg.Numbers == nil || s.Order != Trend || c.MaxID == nil && c.Step == nil && c.Description == nil {
			return t, err
		}
		end := int64(0)
		if c.MaxID != nil {
			end = t.MaxID
		}
		return t, a.cfg.Numbers.Raise(ctx, tag, end, c.Step, c.Description) // the row first: it is safe to repeat
	}, nil)
	return was, is, err
}

// there is the error of a record that cannot be changed or deleted. A tag that has only a row in
// the database gets its record first.
func (a *admin) there(ctx context.Context, tag string, s Stored, damage error) error {
	if damage != nil || s.Revision != 0 {
		return damage
	}
	if _, err := a.claims.adopt(ctx, tag); err != nil {
		return err
	}
	return errAgain
}

// Delete removes a tag and returns its tombstone, whose end is at least that of all that is known
// to be in use. Errors: ErrUnknownTag; ErrUncertain if it may have happened.
func (a *admin) Delete(ctx context.Context, tag string) (Stored, error) {
	return a.amend(ctx, tag, func(s Stored, damage error) (Tag, error) {
		if err := a.there(ctx, tag, s, damage); err != nil {
			return s.Tag, err
		}
		t, err := s.Delete(a.Seen(tag))
		if err != nil || a.cfg.Numbers == nil || s.Order != Trend {
			return t, err
		}
		row, err := a.cfg.Numbers.Peek(ctx, tag)
		if err != nil {
			return t, err
		}
		t = t.Rise(max(row.MaxID, row.Mark), 0)
		return t, a.cfg.Numbers.Remove(ctx, tag, t.MaxID, t.Kind()) // the row first: then nothing can be proposed
	}, nil)
}

// errAgain makes [Allocator.amend] look at the record again.
var errAgain = errors.New("the record has changed")

// amend lets f make the new record of a tag and writes it, again and again until no other generator
// was first. f may be called several times. damage is why the record that there is cannot be used.
// then is done after the write. The new record is in force here when amend returns.
func (a *admin) amend(
	ctx context.Context, tag string, f func(s Stored, damage error) (Tag, error), then func(Tag) error,
) (Stored, error) {
	for wait := firstRace; ; wait = min(2*wait, lastRace) {
		begun := time.Now()
		s, damage := a.claims.load(ctx, tag)
		if damage != nil && s.Revision == 0 { // it could not be read
			return Stored{}, damage
		}
		t, err := f(s, damage)
		if err == errAgain {
			continue
		}
		if err != nil {
			return Stored{}, err
		}
		if apart(time.Now(), begun) > changeFresh { // a database is far away, or this process stood still
			begun = time.Now()
			again, err := a.claims.load(ctx, tag)
			if again != s || (err == nil) != (damage == nil) || apart(time.Now(), begun) > changeFresh {
				continue
			}
		}
		made, err := a.claims.swap(ctx, t, s.Revision)
		switch {
		case err == nil:
			if then != nil {
				if err := then(t); err != nil {
					return made, err
				}
			}
			a.reconcile(Update{Stored: made}, true)
			return made, nil
		case !errors.Is(err, ErrConflict):
			return Stored{}, err
		case !pause(ctx, rand.N(wait), nil):
			return Stored{}, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// Outvote writes the rules of a record again, with a version above one that a generator has in
// force. After a restore of the store a version may have been given twice. It returns the record
// that is there.
func (a *admin) Outvote(ctx context.Context, s Stored, version int64) (Stored, error) {
	return a.amend(ctx, s.Name, func(now Stored, damage error) (Tag, error) {
		if damage != nil || now.present() != nil || now.Version > max(version, s.Version) { // another operator was faster
			return now.Tag, errors.Join(damage, now.present())
		}
		t := now.Tag
		t.Rules = s.Rules
		t.Version = max(version, now.Version) + 1
		return t, nil
	}, nil)
}

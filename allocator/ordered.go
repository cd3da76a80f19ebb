package allocator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Ordered is the tags of an installation whose tags of trend order are in a database. Strict and opaque tags are apart: they are in another
// store. It implements [Store].
//
// A name belongs to one of the two stores, for life. Its record in the ledger decides which. Before a tag that is apart is created, its
// record is written there, by a write that fails if the name has a record. Each range of the database needs a claim in the same record. So
// no ID of a tag that is apart can come from the database, even if two generators create the name at once. A row of the database with
// the name of such a tag is not served.
type Ordered struct {
	trend, apart Store
	ledger       Ledger
	shadowed     func(tag string, shadowed bool)

	mu        sync.Mutex      // of what the watch has found; never held across I/O
	names     map[string]bool // of these tags
	shadows   map[string]bool // those that the database has a row of, too
	unchecked []string        // those for which the database was not asked yet
}

// NewOrdered returns the tags of trend, whose ranges are claimed in the ledger (see [WithLedger]), and those of apart.
func NewOrdered(trend, apart Store, ledger Ledger) *Ordered {
	return &Ordered{trend: trend, apart: apart, ledger: ledger, shadowed: func(string, bool) {},
		names: make(map[string]bool), shadows: make(map[string]bool)}
}

// OnShadow calls f when Watch finds that the database has a row with the name of such a tag, and when it finds that the
// row is gone. Call it before Watch.
func (o *Ordered) OnShadow(f func(tag string, shadowed bool)) { o.shadowed = f }

// Reserve implements [Store].
func (o *Ordered) Reserve(ctx context.Context, tag string, n, from int64) (Grant, error) {
	if !o.isApart(tag) { // a name that once was apart will always be
		grant, err := o.trend.Reserve(ctx, tag, n, from)
		if !errors.Is(err, ErrApart) {
			return grant, err
		}
		o.found(tag)
	}
	return o.apart.Reserve(ctx, tag, n, from)
}

// of returns the store of a tag.
func (o *Ordered) of(ctx context.Context, tag string) (Store, error) {
	_, err := readTrend(ctx, o.ledger, tag)
	switch {
	case errors.Is(err, ErrApart):
		return o.apart, nil
	case err != nil && !errors.Is(err, ErrDamaged): // the database says more about a tag whose record is damaged
		return nil, err
	}
	return o.trend, nil
}

// Get implements [Store].
func (o *Ordered) Get(ctx context.Context, tag string) (Tag, error) {
	s, err := o.of(ctx, tag)
	if err != nil {
		return Tag{}, err
	}
	return s.Get(ctx, tag)
}

// Create implements [Store].
func (o *Ordered) Create(ctx context.Context, tag Tag) (Tag, error) {
	if tag.Order == Trend {
		return o.trend.Create(ctx, tag)
	}
	err := o.mark(ctx, tag)
	for errors.Is(err, errMarkRace) && ctx.Err() == nil {
		err = o.mark(ctx, tag)
	}
	if err != nil {
		return Tag{}, err
	}
	return o.apart.Create(ctx, tag)
}

// errMarkRace: another generator made the record of the name first.
var errMarkRace = fmt.Errorf("%w: another generator created a tag of that name first", ErrConflict)

// mark makes sure that a name belongs to tags of this one's order, which is not Trend.
func (o *Ordered) mark(ctx context.Context, tag Tag) error {
	e, err := o.ledger.Read(ctx, tag.Name)
	switch {
	case err != nil:
		return err
	case e.Order == tag.Order:
		return nil
	case e.Order != Trend:
		return fmt.Errorf("%s: %w", tag.Name, OrderConflict(e.Order))
	case e.Revision == 0:
		_, err = o.trend.Get(ctx, tag.Name) // SQL may have made a row of which nothing was claimed yet
	}
	switch {
	case err == nil, errors.Is(err, ErrDeleted):
		return fmt.Errorf("%s: %w", tag.Name, OrderConflict(Trend))
	case !errors.Is(err, ErrUnknownTag):
		return err
	}
	if _, err = o.ledger.Write(ctx, tag.Name, Entry{End: 1, Order: tag.Order}); errors.Is(err, ErrConflict) {
		return errMarkRace
	}
	return err
}

// Update implements [Store].
func (o *Ordered) Update(ctx context.Context, tag string, change Change) (Tag, error) {
	s, err := o.of(ctx, tag)
	if err != nil {
		return Tag{}, err
	}
	return s.Update(ctx, tag, change)
}

// Delete implements [Store].
func (o *Ordered) Delete(ctx context.Context, tag string, from int64) (Tag, error) {
	s, err := o.of(ctx, tag)
	if err != nil {
		return Tag{}, err
	}
	return s.Delete(ctx, tag, from)
}

// List implements [Store]. A row with the name of such a tag is left out.
func (o *Ordered) List(ctx context.Context, q Query) ([]Tag, error) {
	rows, err := o.trend.List(ctx, q)
	if err != nil {
		return nil, err
	}
	tags, err := o.apart.List(ctx, q)
	if err != nil {
		return nil, err
	}
	tags = append(tags, rows...) // those that are apart come first, so they stay
	slices.SortStableFunc(tags, func(x, y Tag) int { return cmp.Compare(x.Name, y.Name) })
	tags = slices.CompactFunc(tags, func(x, y Tag) bool { return x.Name == y.Name })
	return tags[:min(q.Limit, len(tags))], nil
}

// Floors implements [Store].
func (o *Ordered) Floors(ctx context.Context, f func(tag string, floor int64, rules Rules)) error {
	return cmp.Or(o.trend.Floors(ctx, f), o.apart.Floors(ctx, f))
}

// Watch implements [Store]. It ends when the watch on the database breaks. It repeats a watch on these tags that breaks,
// because to begin with all rows again would be much work for the database.
func (o *Ordered) Watch(ctx context.Context, f func(Tag)) error {
	ctx, cancel := context.WithCancel(ctx)
	var turn sync.Mutex // one call of f at a time
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	watches.Go(func() {
		for ok := true; ok; ok = pause(ctx, lastPause, nil) {
			_ = o.apart.Watch(ctx, func(t Tag) {
				if t.Order != Trend {
					o.found(t.Name)
				} else if !o.isApart(t.Name) { // left from before the installation had a database
					return
				}
				turn.Lock()
				defer turn.Unlock()
				f(t)
			})
		}
	})
	watches.Go(func() { o.findShadows(ctx) })
	return o.trend.Watch(ctx, func(t Tag) {
		if o.isApart(t.Name) {
			o.shadow(t.Name, !t.Deleted)
			return
		}
		turn.Lock()
		defer turn.Unlock()
		f(t)
	})
}

// found notes the name of such a tag.
func (o *Ordered) found(tag string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.names[tag] {
		o.names[tag] = true
		o.unchecked = append(o.unchecked, tag)
	}
}

func (o *Ordered) isApart(tag string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.names[tag]
}

// shadow notes whether the database has a row with the name of such a tag.
func (o *Ordered) shadow(tag string, is bool) {
	o.mu.Lock()
	was := o.shadows[tag]
	o.shadows[tag] = is
	if !is {
		delete(o.shadows, tag)
	}
	o.mu.Unlock()
	if was != is {
		o.shadowed(tag, is)
	}
}

// shadowsAgain is after how many rounds of findShadows, each at least lastPause, the rows that are there are looked for again.
const shadowsAgain = 30

// findShadows asks the database once for each such tag: a row that was there before the tag became known does not come
// from the watch again. It asks for the rows that it found from time to time: the watch does not report the end of a row that came
// and went between two of its readings.
func (o *Ordered) findShadows(ctx context.Context) {
	for round := 1; pause(ctx, lastPause, nil); round++ {
		o.mu.Lock()
		tags := o.unchecked
		o.unchecked = nil
		if round%shadowsAgain == 0 {
			tags = slices.AppendSeq(tags, maps.Keys(o.shadows))
		}
		o.mu.Unlock()
		for len(tags) > 0 {
			_, err := o.trend.Get(ctx, tags[0])
			there := err == nil || errors.Is(err, ErrApart)
			if !there && !errors.Is(err, ErrUnknownTag) {
				break // the database is unavailable
			}
			o.shadow(tags[0], there)
			tags = tags[1:]
		}
		o.mu.Lock()
		o.unchecked = append(o.unchecked, tags...)
		o.mu.Unlock()
	}
}

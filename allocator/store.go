package allocator

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
)

// Store keeps the record of every tag, durably and for all generators. It alone
// decides which generator owns which IDs.
//
// Every method is safe for concurrent use, from any number of processes.
//
// Durability: when a method returns without an error, its change survives the
// crash of every process involved.
//
// Ambiguity: when a method returns an error that its own comment does not name, its
// change may or may not have happened. A range whose Reserve failed is lost, and never
// used. Create, Update and Delete return ErrUncertain, unless it is certain that nothing was written.
// Implementations must not retry a write in a way that could return a range twice. They
// may lose ranges.
//
// Time: every method returns soon after its context is done.
//
// The names that reach a Store have passed [CheckTag]; they are case-sensitive.
type Store interface {
	// Reserve takes the next IDs of a tag: at least n of them, and at least the
	// tag's step. Of a strict tag it takes exactly n; with n = 0 it only shows whether the record can be written.
	// It moves max_id ahead by as many. Near the largest int64 it
	// takes fewer, down to n, and returns ErrExhausted when less than n are left. The record's Limit, if it has one,
	// counts instead. Of a paused tag it reserves nothing and returns a PausedError.
	// The range must be what this very write moved max_id over.
	//
	// The range begins at or above from: all IDs below it are in use. A max_id below
	// from shows that the store went backwards. Then Reserve moves max_id up to from or a little above, by
	// one conditional write that can only move it upwards. It reserves nothing and returns an
	// AdvancedError. If that write changed nothing, another generator has done it: then Reserve
	// goes on. A store whose max_id others move too returns a RegressedError and moves nothing.
	//
	// If another generator was ahead, it must return ErrConflict and not try again by
	// itself: what the caller has seen by then decides whether the next answer is right. For a strict tag
	// the error is an OvertakenError.
	// Errors that reserved nothing: ErrUnknownTag, ErrExhausted, ErrConflict, ErrRegressed, ErrPaused.
	Reserve(ctx context.Context, tag string, n, from int64) (Grant, error)

	// Get returns a tag's record. It may be a little old.
	// Errors: ErrUnknownTag, as ErrDeleted where a tombstone is kept.
	Get(ctx context.Context, tag string) (Tag, error)

	// List returns, in the order of bytes, the tags that a query asks for. It leaves out
	// tombstones. It has records that other programs made and that cannot be served,
	// because CheckTag refuses the name or the step is below 1.
	List(ctx context.Context, q Query) ([]Tag, error)

	// Create adds a tag and returns its record. The max_id of a tag that was
	// deleted before is at least the deleted one's. A max_id above 1 becomes the record's Floor.
	// Errors: ErrExists; ErrConflict if the name has, or had, another order; ErrBadValue for a strict tag in a store that
	// keeps none.
	Create(ctx context.Context, tag Tag) (Tag, error)

	// Update changes a tag and returns its record. A new max_id becomes the
	// record's Floor. Errors: ErrUnknownTag; ErrConflict for a max_id below
	// the present one; ErrBadValue for the step of a strict tag.
	Update(ctx context.Context, tag string, change Change) (Tag, error)

	// Delete removes a tag and returns its tombstone, whose MaxID is at least
	// the end of all that was ever reserved, and at least from. Errors: ErrUnknownTag.
	Delete(ctx context.Context, tag string, from int64) (Tag, error)

	// Floors calls f with the floor and the rules of every tag that has one of them. The floor is its record's Floor,
	// or the MaxID of a tombstone. If it returns nil, it has called f for all of them. It must
	// be quick with many thousands of tags, because requests wait for it.
	Floors(ctx context.Context, f func(tag string, floor int64, rules Rules)) error

	// Watch calls f for the tags as they are, tombstones included, then for
	// each change, from one goroutine, until the context is done or the watch
	// breaks. Its error is never nil. Changes of one tag come in their order. Close
	// ones may come as one. A reservation need not come. A tag whose record was
	// removed by hand, without a tombstone, comes as Deleted with a MaxID of 0.
	Watch(ctx context.Context, f func(Tag)) error
}

// Grant is what [Store.Reserve] took.
type Grant struct {
	Range
	Step  int64 // the tag's step, as the store has it now; 1 if it is strict
	Order Order
	Rules Rules
	// Ending says that this range is the one by which 80 % of the IDs below the limit are reserved.
	Ending bool
}

// check returns an error for a grant that no store may return.
func (g Grant) check(from int64) error {
	if g.First < max(from, 1) || g.Last < g.First || g.Last == math.MaxInt64 || g.Step < 1 {
		return fmt.Errorf("the store returned an invalid range: %d to %d, step %d; it must begin at %d or above", g.First, g.Last, g.Step, from)
	}
	return nil
}

// Query asks for a page of a list that is in the order of names. Names are
// compared byte by byte: they are case-sensitive, and there are no wildcards. A text
// that no tag can have finds none.
type Query struct {
	Prefix   string // names begin with it
	Contains string // names have it anywhere, also in the prefix
	After    string // names come after it
	Limit    int    // the most entries; at least 1
}

// Match reports whether a list without a limit has the name.
func (q Query) Match(name string) bool {
	return name > q.After && strings.HasPrefix(name, q.Prefix) && strings.Contains(name, q.Contains)
}

// Range is a run of consecutive IDs, First to Last, both included.
// A valid range has 1 <= First <= Last.
type Range struct{ First, Last int64 }

// Len is the number of IDs in the range.
func (r Range) Len() int64 { return r.Last - r.First + 1 }

// Overlaps reports whether both have an ID in common.
func (r Range) Overlaps(other Range) bool { return r.First <= other.Last && other.First <= r.Last }

// All yields the IDs of the range in increasing order.
func (r Range) All() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for id := r.First; ; id++ {
			// Compared before the increment: Last may be the largest int64.
			if !yield(id) || id == r.Last {
				return
			}
		}
	}
}

// String is the form of the wire: "first-last", or the bare number of a run of one.
func (r Range) String() string { return string(r.Append(nil)) }

// Append adds the form of [Range.String] to b.
func (r Range) Append(b []byte) []byte {
	b = strconv.AppendInt(b, r.First, 10)
	if r.Last != r.First {
		b = append(b, '-')
		b = strconv.AppendInt(b, r.Last, 10)
	}
	return b
}

// AppendRange adds r to ranges. If r continues the last of them, it joins the two.
func AppendRange(ranges []Range, r Range) []Range {
	if n := len(ranges); n > 0 && ranges[n-1].Last+1 == r.First {
		ranges[n-1].Last = r.Last
		return ranges
	}
	return append(ranges, r)
}

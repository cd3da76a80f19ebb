package allocator

import "context"

// Records keeps the record of every tag, whatever hands out its numbers, durably and for all
// generators. A range is handed out only after a record that has it was written. It knows nothing
// of what a record means.
//
// Every method is safe for concurrent use, from any number of processes, and returns soon after its
// context is done.
//
// Durability: when Swap returns without an error, its record survives the crash of every process
// involved.
//
// Order: the writes of one tag come one after the other, each on the record that the one before it
// left. Swap decides that, and not Load, which may be answered by a server that is behind.
type Records interface {
	// Load returns the record of a tag. Its Revision is 0 if there is none. After a Swap that
	// failed without a conflict, Load fails too until something can be written again. Otherwise a
	// database would lose a range at each attempt. Errors: ErrDamaged for a record that cannot have
	// been written here, and ErrNewer; then the Revision is that of the record, and only its name
	// counts.
	Load(ctx context.Context, tag string) (Stored, error)

	// Swap writes t in place of the record with this revision (0: there must be none) and returns
	// the new revision. It sends the write once. An error that matches ErrConflict: nothing was
	// written, and nothing will be. An error that matches ErrUncertain: it may have been written,
	// or may still be. Any other error: nothing was written.
	Swap(ctx context.Context, t Tag, revision uint64) (uint64, error)

	// Watch calls f, from one goroutine, with every record as it is, tombstones included, and then
	// with each change. Changes of one tag come in their order, and close ones may come as one.
	// After a loss of the connection, or a gap, it begins again with every record. It returns when
	// the context is done; its error is never nil.
	Watch(ctx context.Context, f func(Update)) error

	// Sync makes a Watch begin again, and returns when f has had all that was written before the
	// call. Without a Watch it waits for one.
	Sync(ctx context.Context) error

	// Err says what is wrong with the records as a whole; nil: nothing, as far as is known. While
	// it matches ErrTagsLost, a tag without a record may have been one of those that were lost. It
	// does not block.
	Err() error
}

// Stored is a tag's record as it was read or written.
type Stored struct {
	Tag
	Revision uint64 // of the record: later ones have higher revisions, but after a restore of the store; 0: there is none
}

// Update is what [Records.Watch] brings.
type Update struct {
	Stored
	Problem error // why the record cannot be used: ErrDamaged or ErrNewer; then only Name and Revision count
	First   bool  // it is one of those that were there when the watch began, or began again
}

// Numbers keeps max_id of the tags in trend order in a database, where other programs can read and
// raise it. What a database forgets the records know: a range from Numbers is handed out only when
// the tag's record has it.
//
// Every method is safe for concurrent use, from any number of processes, and returns soon after its
// context is done. The names have passed [idspace.CheckTag]; they are case-sensitive. An error that
// a method does not name: it may have been done.
type Numbers interface {
	// Advance moves max_id over the next n IDs, or over as many as the row's step if that is more,
	// and returns them and the step. It takes fewer, down to n, near the largest int64. The range
	// is what this very statement moved max_id over. step is the row's step as the caller knows it.
	// If it is another one, Advance takes longer.
	//
	// It begins at or above from. A max_id below shows that the database went backwards. Then
	// Advance moves it up to from or a little above, by a statement that can only move it upwards,
	// and returns an AdvancedError.
	//
	// Errors that took nothing: ErrUnknownTag (there is no row), ErrExhausted, ErrConflict (ask
	// again), ErrLocked, ErrDamaged (the row's step cannot be used).
	Advance(ctx context.Context, tag string, n, step, from int64) (r Range, now int64, err error)

	// Peek returns the row and the mark of a tag. It locks them for a moment, so that no replica
	// that is behind answers.
	Peek(ctx context.Context, tag string) (Row, error)

	// Add makes the row of a tag, with the Name, MaxID, Step and Description of r. If there is one
	// already, or one that the database takes for the same, the error is ErrExists.
	Add(ctx context.Context, r Row) error

	// Raise moves max_id up to end, never down, and changes step and description unless they are
	// nil. Errors: ErrUnknownTag, idspace.ErrBadValue.
	Raise(ctx context.Context, tag string, end int64, step *int64, description *string) error

	// Mark notes how far a name was in use, never less than before, and to which kind of tag it
	// belongs. It needs no row.
	Mark(ctx context.Context, tag string, mark int64, kind string) error

	// Remove is Mark, and removes the row if there is one, in one transaction.
	Remove(ctx context.Context, tag string, mark int64, kind string) error

	// Rows calls f with each row, and with each mark that has no row. Rows that changed meanwhile
	// come as they were before or after.
	Rows(ctx context.Context, f func(Row)) error

	// Check looks whether the database can still be used: that it is no replica, has its table, and
	// belongs to this installation.
	Check(ctx context.Context) error

	// Err says why the database is unavailable, as far as the last call has noticed; nil: it is
	// not. It does not block.
	Err() error
}

// Row is what a database has of a tag.
type Row struct {
	Name        string
	MaxID       int64 // the next ID that nobody has reserved; 0: there is no row
	Step        int64
	Description string
	Mark        int64  // how far the name was in use when a tag of that name was deleted; 0: there is no mark
	Kind        string // of the mark: see [Tag.Kind]
	Problem     error  // why the row cannot be served: idspace.ErrBadTag or ErrDamaged
}

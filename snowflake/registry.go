package snowflake

import "context"

// Record says who holds a worker ID, and until when. Times are Unix ms.
type Record struct {
	Worker      int64  `json:"worker"`
	Node        string `json:"node"`        // the holder's name, for people
	Incarnation string `json:"incarnation"` // random, never empty, one for each start of the holder: what tells holders apart
	// ReservedUntil is what uniqueness rests on: the holder issues only IDs
	// with a time before it, whoever takes the worker over only from it on.
	ReservedUntil int64 `json:"reserved_until_ms"`
	Acquired      int64 `json:"acquired_ms"` // by this incarnation's holder; for people
	Reported      int64 `json:"reported_ms"` // the holder's last word: a time that its clock had reached
}

// Entry is a record as the registry has it.
type Entry struct {
	Record
	Version uint64 // of the record: what the next write must find; never 0
}

// Choice says which workers a generator may take.
type Choice struct {
	First, Last int64                   // both included
	Taken       func(worker int64) bool // one that a running generator claims, whatever the registry says
}

// Allows reports whether the worker is one of the choice.
func (c Choice) Allows(worker int64) bool {
	return c.First <= worker && worker <= c.Last && (c.Taken == nil || !c.Taken(worker))
}

// Registry keeps the records of an installation's workers, at most one for each
// worker. Its writes are durable and are compare-and-sets: of two that find the same,
// one succeeds. It decides nothing else; whether a record may be overwritten,
// [Generator] knows.
//
// After an error that is not said to change nothing, the write may have
// happened, or may still happen. One that matches [ErrRefused] says that trying
// again does not help. Methods are safe for concurrent use and
// return when their context is done. The suite in snowflaketest says the same
// in tests.
type Registry interface {
	// List returns all records by worker. It may be a little old. A record that
	// cannot be read is left out; its worker stays taken.
	List(ctx context.Context) ([]Entry, error)
	// Add makes a record for a worker that has none and that the choice allows;
	// the registry chooses which, and sets r.Worker. [ErrFull] says that there is
	// none and changes nothing.
	Add(ctx context.Context, r Record, c Choice) (Entry, error)
	// Put replaces the record of r.Worker if its version is still the one given,
	// and returns the new version. [ErrConflict] says that it is not, that there is
	// no record, or that another write to it is under way; it changes nothing.
	Put(ctx context.Context, r Record, version uint64) (uint64, error)
}

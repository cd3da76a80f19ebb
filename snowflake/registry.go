package snowflake

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// The errors of a [Registry].
var (
	// ErrConflict: another generator changed the record first.
	ErrConflict = errors.New("the worker's record was changed by another generator")
	// ErrFull: every worker that was allowed has a record.
	ErrFull = errors.New("all workers have a record")
)

// Record says who holds a worker ID, and until when. Times are Unix ms.
type Record struct {
	Worker      int64  `json:"worker"`
	Node        string `json:"node"`        // the holder's name, for people
	Incarnation string `json:"incarnation"` // random and never empty; each start of a holder has another
	// ReservedUntil is what uniqueness rests on. The holder issues only IDs with an earlier
	// time. The next holder issues only IDs with this time or a later one.
	ReservedUntil int64 `json:"reserved_until_ms"`
	Acquired      int64 `json:"acquired_ms"` // by this incarnation's holder; for people
	Reported      int64 `json:"reported_ms"` // a time that the holder's clock had reached at its last report
}

// Entry is a record as the registry has it.
type Entry struct {
	Record
	Version uint64 // of the record: what the next write must find; never 0
}

// Choice says which workers a generator may take.
type Choice struct {
	First, Last int64                   // both included
	Taken       func(worker int64) bool // a peer holds it, or held it lately, whatever the registry says
}

// Allows reports whether the worker is one of the choice.
func (c Choice) Allows(worker int64) bool {
	return c.First <= worker && worker <= c.Last && (c.Taken == nil || !c.Taken(worker))
}

// Registry keeps the records of an installation's workers, at most one for each worker. Its
// writes are durable, and are compare-and-sets: of two that find the same, one succeeds. It
// decides nothing else. Only [Generator] knows whether a record may be overwritten.
//
// After an error that is not said to change nothing, the write may have happened, or may still
// happen. If an error matches [ErrRefused], trying again does not help. Methods are safe for
// concurrent use and return when their context is done. The suite in snowflaketest says the same in
// tests.
type Registry interface {
	// List returns all records by worker. It may be a little old. A record that cannot be
	// read is left out; its worker stays taken.
	List(ctx context.Context) ([]Entry, error)
	// Add makes a record for a worker that has none and that the choice allows. The registry
	// chooses the worker, and sets r.Worker. [ErrFull] says that there is none, and changes
	// nothing.
	Add(ctx context.Context, r Record, c Choice) (Entry, error)
	// Put replaces the record of r.Worker if its version is still the given one, and
	// returns the new version. [ErrConflict] says that it is another one, that there is
	// no record, or that another write to it is under way; it changes nothing.
	Put(ctx context.Context, r Record, version uint64) (uint64, error)
}

// ReleaseMargin is how far the clock of a released worker's owner may have been ahead.
const ReleaseMargin = 10 * time.Second

// Release returns the record that replaces e when an operator releases the worker of a stopped
// owner. now is the time of the generator that writes it, in Unix ms.
//
// The incarnation is new: an owner that comes back finds nothing of its own, and takes another
// worker. The reservation ends ReleaseMargin after now, or after the owner's last known time if
// that is later. Release never moves it to a later time. What earlier owners issued lies before
// Acquired, so before that end.
//
// Uniqueness then rests on what no record shows, and the operator must ensure:
//   - The owner is stopped, and stays so. Its data folder is not started again before
//     e.ReservedUntil while the registry is unavailable: it would continue from the file alone.
//   - While it held the worker, its clock was never ahead of the later of now and its last
//     report by more than ReleaseMargin. So all that it issued lies before the new end.
func Release(e Entry, now int64) Record {
	r := e.Record
	r.Incarnation = rand.Text()
	margin := ReleaseMargin.Milliseconds()
	r.ReservedUntil = min(r.ReservedUntil-margin, max(now, r.Reported, r.Acquired)) + margin // this way nothing overflows
	return r
}

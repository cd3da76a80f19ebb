package allocator

import (
	"context"
	"encoding/json"
	"time"
)

// Ledger keeps, beside the store, one number for each tag: the end of all ranges that were
// claimed. A range is claimed before its first ID is handed out, and only if it begins at or
// above that number. So a store that went backwards cannot repeat an ID: both would have to
// forget the same range. See [WithLedger].
//
// Every method is safe for concurrent use, from any number of processes.
//
// Durability: when Write returns without an error, its change survives the crash of every process
// involved.
//
// Order: the writes of one tag come one after the other, each on the record that the one before it
// left. Write decides that, not Read.
//
// Ambiguity: after an error of Write that does not match ErrConflict the change may have happened,
// or may still happen later. The range is then lost, as if it had been claimed.
//
// Availability: after such an error Read fails too, until a write can succeed again. Else the caller would
// reserve a range in the store at each attempt, and lose it.
//
// Damage: an implementation returns an error that matches ErrDamaged for a record that it cannot have
// written. It guesses nothing.
//
// Time: every method returns soon after its context is done.
type Ledger interface {
	// Read returns the record of a tag; the zero Entry if the tag has none. It may be a little old.
	Read(ctx context.Context, tag string) (Entry, error)

	// Write replaces the record of a tag if it is still the one with e.Revision, which Read or Write
	// returned, and returns the new revision. Errors that changed nothing, now and later: ErrConflict.
	Write(ctx context.Context, tag string, e Entry) (revision uint64, err error)

	// Each calls f with the record of every tag. A record that is written meanwhile may come as it
	// was, or not at all.
	Each(ctx context.Context, f func(tag string, e Entry)) error
}

// Entry is the record that a [Ledger] keeps of a tag.
type Entry struct {
	End      int64  // no ID below it can be claimed any more
	Floor    int64  // where an operator last moved max_id to, or where a deletion left it; 0: never
	Last     Claim  // the last range that was claimed; it decides nothing. Times are kept in milliseconds
	Order    Order  // if not Trend, the name belongs to a strict or opaque tag, and no range of it can be claimed here
	Rules    Rules  // of a tag of trend order
	Revision uint64 // of the record; 0: the tag has none
}

// Claim says who claimed a range, and when. It is evidence for people: no decision rests on it. The zero Claim means that
// there is none.
type Claim struct {
	First int64     `json:"first,string"`
	Last  int64     `json:"last,string"`
	Node  string    `json:"node"`           // the generator
	Run   string    `json:"run,omitempty"`  // of it: each start has another
	Step  int64     `json:"step,omitempty"` // of a tag in trend order, as the generator has adapted it
	Time  time.Time `json:"time"`           // by its clock
}

// UnmarshalJSON implements [json.Unmarshaler]. A claim that cannot be read becomes the zero Claim: bad evidence must not
// damage the record.
func (c *Claim) UnmarshalJSON(data []byte) error {
	type plain Claim
	var p plain
	if err := json.Unmarshal(data, &p); err != nil {
		p = plain{}
	}
	*c = Claim(p)
	return nil
}

// NewClaim returns the claim of a range by a generator, at the present time.
func NewClaim(r Range, node string) Claim {
	return Claim{First: r.First, Last: r.Last, Node: node, Time: Now()}
}

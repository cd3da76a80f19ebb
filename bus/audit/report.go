package audit

import (
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// What an audit reads and finds. All times of claims and events are by the clock of the generator
// that they name.
type (
	// Report is what an audit found.
	Report struct {
		// Events is how many refill and worker events were read, Since when the oldest refill event
		// was published.
		Events  int64          `json:"events"`
		Since   time.Time      `json:"since,omitzero"`
		Tags    []TagAudit     `json:"tags"`
		Workers []admin.Worker `json:"workers,omitempty"` // those without a record have no Node
		Taken   *TakenReport   `json:"taken,omitempty"`
		// Contradictions are those of tags, workers and what was taken, together.
		Contradictions []Contradiction `json:"contradictions"`
	}
	// Record is what the record of a tag says.
	Record struct {
		Tag string `json:"tag"`
		// Order is [idspace.OrderTrend] or [idspace.OrderStrict]. A strict tag has no refill
		// events: only its last claim is recorded. Empty: there is no record, or it cannot be read.
		Order string `json:"order,omitempty"`
		// Opaque is the domain of an opaque tag, as in [admin.TagRecord]. All claims are of its
		// numbers.
		Opaque string `json:"opaque,omitempty"`
		// End is above all IDs that were claimed. 0: there is no record, or Problem is set.
		End bus.ID `json:"end,omitempty"`
		// Last is the last claim; nil: the record has none.
		Last *allocator.Claim `json:"last,omitempty"`
		// Deleted: the tag was deleted. Its end survives.
		Deleted bool `json:"deleted,omitempty"`
		// Problem says why the record cannot be read.
		Problem string `json:"problem,omitempty"`
	}
	// TagAudit is what the record and the events of a tag say. The events are those that the stream
	// still has. Counts of IDs are strings in JSON, as IDs are: they may be above 2^53.
	TagAudit struct {
		Record
		// Events is how many refill events the stream has of the tag, and Since when the first was
		// published.
		Events int64     `json:"events"`
		Since  time.Time `json:"since,omitzero"`
		// From is the lowest ID that they report. Nothing is known of the IDs below, except that
		// they are claimed.
		From bus.ID `json:"from,omitempty"`
		// Reported is how many IDs the events report. Unreported is how many IDs from From up to
		// End no event reports: they were lost, an operator skipped them, or their event was lost
		// or comes late.
		Reported       int64           `json:"reported,string"`
		Unreported     int64           `json:"unreported,string"`
		Contradictions []Contradiction `json:"contradictions"` // at most 100
	}
	// TakenReport says what became of the IDs that callers got.
	TakenReport struct {
		IDs       int64 `json:"ids,string"`       // different ones
		Repeated  int64 `json:"repeated,string"`  // how often an ID came that was there already
		Unclaimed int64 `json:"unclaimed,string"` // how many were never claimed
	}
	// Contradiction is evidence that an ID was claimed twice, that a record was lost, or that
	// evidence is forged.
	Contradiction struct {
		Kind   ContradictionKind `json:"kind"`
		Tag    string            `json:"tag,omitempty"`
		Worker *int64            `json:"worker,omitempty"`
		First  bus.ID            `json:"first,omitempty"` // the IDs that it is about
		Last   bus.ID            `json:"last,omitempty"`
		// Message is for people. It names generators, times and ranges.
		Message string `json:"message"`
	}
)

// about returns a contradiction about IDs of a tag.
func about(kind ContradictionKind, tag string, ids bus.Range, format string, args ...any) Contradiction {
	return Contradiction{
		Kind: kind, Tag: tag, First: bus.ID(ids.First), Last: bus.ID(ids.Last), Message: fmt.Sprintf(format, args...),
	}
}

// mostContradictions is how many contradictions of one tag or worker are named.
const mostContradictions = 100

// ContradictionKind is a stable word for a kind of contradiction.
type ContradictionKind string

// The kinds of contradictions.
const (
	// Overlap: two claims have the same IDs.
	Overlap ContradictionKind = "overlap"
	// Unclaimed: an event reports IDs that the tag's record does not know as claimed.
	Unclaimed ContradictionKind = "unclaimed"
	// DamagedRecord: a record cannot be read, or contradicts itself.
	DamagedRecord ContradictionKind = "damaged_record"
	// DamagedEvent: a message on a subject of refill or worker events cannot be read as such an
	// event.
	DamagedEvent ContradictionKind = "damaged_event"
	// TwoHolders: two generators may issue IDs of the same worker and time.
	TwoHolders ContradictionKind = "two_holders"
	// TakenTwice: the same ID was taken twice.
	TakenTwice ContradictionKind = "taken_twice"
	// TakenUnclaimed: an ID was taken that was never claimed.
	TakenUnclaimed ContradictionKind = "taken_unclaimed"
)

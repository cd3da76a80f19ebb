package audit

import (
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// What an audit finds. All times of claims and events are by the clock of the generator that they name.
type (
	// TagAudit is what the records and events of a tag say. The events are those that the stream still has. Counts of
	// IDs are strings in JSON, as IDs are: they may be above 2^53.
	TagAudit struct {
		admin.TagClaims
		Store string `json:"store"` // kv or mysql
		// Events is how many refill events the stream has of the tag, and Since when the first was published. From is the
		// lowest ID that they report; nothing is known of the IDs below, except that they are claimed.
		Events int64     `json:"events"`
		Since  time.Time `json:"since,omitzero"`
		From   bus.ID    `json:"from,omitempty"`
		// Reported is how many IDs the events report. Lost is how many IDs between these are in no event, in Gaps
		// ranges: a range was reserved and never used, or its event was lost or comes late. Skipped is how many IDs are
		// in no event and below a max_id that an operator set, by the event of the created, changed or deleted tag.
		// Unreported is how many IDs were claimed after the last event.
		Reported   int64 `json:"reported,string"`
		Lost       int64 `json:"lost,string"`
		Gaps       int64 `json:"gaps"`
		Skipped    int64 `json:"skipped,string"`
		Unreported int64 `json:"unreported,string"`
		// Shares says which generator claimed how much of what is reported, the largest share first.
		Shares         []Share         `json:"shares"`
		Contradictions []Contradiction `json:"contradictions"` // at most 100
	}
	// Share is what one generator claimed of a tag.
	Share struct {
		Node    string `json:"node"`
		Refills int64  `json:"refills"`
		IDs     int64  `json:"ids,string"`
	}
	// WorkerAudit is what the registry and events say of a worker.
	WorkerAudit struct {
		admin.Worker
		Contradictions []Contradiction `json:"contradictions"`
	}
	// Contradiction is evidence that an ID was claimed twice, that a record was lost, or that evidence is forged.
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

// ContradictionKind is a stable word for a kind of contradiction.
type ContradictionKind string

// The kinds of contradictions.
const (
	// Overlap: two claims have the same IDs.
	Overlap ContradictionKind = "overlap"
	// Unclaimed: an event reports IDs that the tag's record does not know as claimed.
	Unclaimed ContradictionKind = "unclaimed"
	// StoreBehind: max_id in the database is below what the tag's record has as claimed. The next refill moves it up.
	StoreBehind ContradictionKind = "store_behind"
	// DamagedRecord: a record cannot be read.
	DamagedRecord ContradictionKind = "damaged_record"
	// DamagedEvent: a message on a subject of refill or worker events cannot be read as such an event.
	DamagedEvent ContradictionKind = "damaged_event"
	// TwoHolders: two generators may issue IDs of the same worker and time.
	TwoHolders ContradictionKind = "two_holders"
	// TakenTwice: the same ID was taken twice.
	TakenTwice ContradictionKind = "taken_twice"
	// TakenUnclaimed: an ID was taken that was never claimed.
	TakenUnclaimed ContradictionKind = "taken_unclaimed"
)

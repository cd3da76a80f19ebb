package bus

import (
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// The request and reply of leaf.admin.claims, and what an audit and a trace find. All times of
// claims and events are by the clock of the generator that they name.
type (
	// ClaimsRequest asks how far tags are claimed. It names Tags, at most 1,000 and deleted ones too. Or it asks for a page: up
	// to 2,000 tags whose names come after After in byte order. The reply has fewer tags if more do not fit or cannot be read
	// in time. It has at least one, if there is one.
	ClaimsRequest struct {
		After string   `json:"after,omitempty"`
		Tags  []string `json:"tags,omitempty"`
	}
	// ClaimsPage is the reply to a [ClaimsRequest]. If the request names tags, the page may have only the first of them. Ask for the
	// rest again.
	ClaimsPage struct {
		Store  string      `json:"store"` // kv or mysql
		Claims []TagClaims `json:"claims"`
		Next   string      `json:"next"` // After of the next page; empty: this was the last
	}
	// TagClaims says how far a tag is claimed.
	TagClaims struct {
		Tag string `json:"tag"`
		// Order is [OrderTrend] or [OrderStrict]. Of a strict tag only the last claim is recorded: it has no refill events. Empty: not
		// known, because there is no record, it cannot be read, or the generator is of an older version.
		Order string `json:"order,omitempty"`
		// Opaque is the domain of an opaque tag, as in TagRecord. All that follows is about its numbers.
		Opaque string `json:"opaque,omitempty"`
		// End is above all IDs that were claimed, by the ledger, or by the tag's record in JetStream. 0: there is no record,
		// and nothing was claimed; or Problem is set.
		End ID `json:"end,omitempty"`
		// MaxID is the store's, read after End. 0: the store does not have the tag, or its record cannot be read.
		MaxID ID `json:"max_id,omitempty"`
		// Last is the last claim, as the record has it; nil: the record has none.
		Last *allocator.Claim `json:"last,omitempty"`
		// Problem says why the record cannot be read.
		Problem string `json:"problem,omitempty"`
	}

	// TagAudit is what the records and events of a tag say. The events are those that the stream still has. Counts of IDs are
	// strings in JSON, as IDs are: they may be above 2^53.
	TagAudit struct {
		TagClaims
		Store string `json:"store"` // kv or mysql
		// Events is how many refill events the stream has of the tag, and Since when the first was published. From is the
		// lowest ID that they report; nothing is known of the IDs below, except that they are claimed.
		Events int64     `json:"events"`
		Since  time.Time `json:"since,omitzero"`
		From   ID        `json:"from,omitempty"`
		// Reported is how many IDs the events report. Lost is how many IDs between these are in no event, in Gaps ranges: a
		// range was reserved and never used, or its event was lost or comes late. Skipped is how many IDs are in no event and
		// below a max_id that an operator set, by the event of the created, changed or deleted tag. Unreported is how many IDs
		// were claimed after the last event.
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
		Worker
		Contradictions []Contradiction `json:"contradictions"`
	}
	// Contradiction is evidence that an ID was claimed twice, that a record was lost, or that evidence is forged.
	Contradiction struct {
		Kind   ContradictionKind `json:"kind"`
		Tag    string            `json:"tag,omitempty"`
		Worker *int64            `json:"worker,omitempty"`
		First  ID                `json:"first,omitempty"` // the IDs that it is about
		Last   ID                `json:"last,omitempty"`
		// Message is for people. It names generators, times and ranges.
		Message string `json:"message"`
	}

	// Trace is what is known of an ID. Claimed does not mean that a caller got it: the generator
	// may have it in memory, or may have lost it when it ended.
	Trace struct {
		Tag     string       `json:"tag,omitempty"` // empty: a snowflake
		ID      ID           `json:"id"`
		Outcome TraceOutcome `json:"outcome"`
		Message string       `json:"message"` // for people
		// Order is that of the tag, as in TagClaims.
		Order string `json:"order,omitempty"`
		// Number is that of the ID of an opaque tag. Claims and End are of numbers.
		Number ID `json:"number,omitempty"`
		// Claims are those of the ID. More than one is a contradiction.
		Claims []TracedClaim `json:"claims"`
		// Since is from when on the stream has events of this tag or worker; zero: it has none.
		Since time.Time `json:"since,omitzero"`
		// End is above all IDs of the tag that were claimed.
		End ID `json:"end,omitempty"`
		// Decoded are the parts of a snowflake, and ReservedUntil the end of what its worker has claimed.
		Decoded       *Decoded  `json:"decoded,omitempty"`
		ReservedUntil time.Time `json:"reserved_until,omitzero"`
	}
	// TracedClaim is the claim of a range of a tag, or of a stretch of time of a worker.
	TracedClaim struct {
		Node string    `json:"node"`
		Time time.Time `json:"time"`
		// First to Last is the range; 0 for a worker.
		First ID              `json:"first,omitempty"`
		Last  ID              `json:"last,omitempty"`
		Cause allocator.Cause `json:"cause,omitempty"` // empty: not recorded
		// Record is true if the tag's or worker's record shows the claim, and no event does.
		Record bool `json:"record,omitempty"`
	}
)

// ContradictionKind is a stable word for a kind of contradiction.
type ContradictionKind string

// The kinds of contradictions.
const (
	// Overlap: two claims have the same IDs.
	Overlap ContradictionKind = "overlap"
	// Unclaimed: an event reports IDs that the ledger, or the record in JetStream, does not know as claimed.
	Unclaimed ContradictionKind = "unclaimed"
	// StoreBehind: max_id in the database is below what the ledger knows as claimed. The next refill moves it up.
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

// TraceOutcome is a stable word for what is known of an ID.
type TraceOutcome string

// The outcomes of a trace.
const (
	// Claimed: Trace.Claims says by whom.
	Claimed TraceOutcome = "claimed"
	// NotClaimed: no generator has claimed it yet.
	NotClaimed TraceOutcome = "not_claimed"
	// NotRecorded: it is older than the events in the stream. It is claimed; by whom is no longer recorded. Or it is below the
	// last claim of a strict tag: older ones are not recorded, so it may also have been skipped.
	NotRecorded TraceOutcome = "not_recorded"
	// Gap: it lies below IDs that are claimed, and no event reports it, though the stream has older ones. It was lost or
	// skipped, or its event was lost.
	Gap TraceOutcome = "gap"
	// Impossible: no generator can have issued this snowflake.
	Impossible TraceOutcome = "impossible"
)

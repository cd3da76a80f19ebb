package admin

import (
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// The requests and replies of leaf.admin.
type (
	// PageRequest asks for a page of a list: up to Limit entries (default and maximum 1,000) whose tag
	// starts with Prefix, contains Contains, and comes after After in byte order.
	PageRequest struct {
		Prefix   string `json:"prefix,omitempty"`
		Contains string `json:"contains,omitempty"`
		After    string `json:"after,omitempty"`
		Limit    int    `json:"limit,omitempty"`
	}
	// BuffersRequest is the request of leaf.admin.buffers: for a page, or for the named tags, at most 100.
	BuffersRequest struct {
		PageRequest
		Tags []string `json:"tags,omitempty"`
	}
	// KnownRequest is the request of leaf.admin.known: for a page of the tags that come after After in byte order.
	KnownRequest struct {
		After string `json:"after,omitempty"`
	}
	// KnownPage is one generator's reply to leaf.admin.known. A generator that waits for its installation answers too.
	KnownPage struct {
		Node         string     `json:"node"`
		Installation string     `json:"installation"` // that its data folder belongs to; empty: none
		Tags         []KnownTag `json:"tags"`
		Next         string     `json:"next"` // After of the next page; empty: this was the last
	}
	// KnownTag is how far a generator knows a tag to be in use, whatever the store says.
	KnownTag struct {
		Tag string `json:"tag"`
		End bus.ID `json:"end"` // of all ranges: no ID from it on is known to be in use
		// Order is [bus.OrderStrict] if the generator has handed out IDs of the tag and it is strict. Opaque is its
		// domain, likewise.
		Order  string `json:"order,omitempty"`
		Opaque string `json:"opaque,omitempty"`
	}
	// MissingTags is the reply of leaf.admin.tags.missing.
	MissingTags struct {
		Tags []MissingTag `json:"tags"`
		More int          `json:"more,omitempty"` // missing ones that did not fit into the reply
	}
	// MissingTag is a tag that generators or events know, and of which there is no record: JetStream lost it, or a
	// backup lacks it.
	MissingTag struct {
		Tag    string `json:"tag"`
		End    bus.ID `json:"end"`              // of all ranges that are known: it must begin there or above
		Order  string `json:"order,omitempty"`  // [bus.OrderTrend] or [bus.OrderStrict], or empty if no event says it
		Opaque string `json:"opaque,omitempty"` // its domain
	}
	// TagsPage is the reply of leaf.admin.tags.list.
	TagsPage struct {
		Tags []TagRecord `json:"tags"`
		// Unserved are records that cannot be served. Other programs made them.
		Unserved []UnservedTag `json:"unserved,omitempty"`
		Next     string        `json:"next"` // After of the next page; empty: this was the last
	}
	// UnservedTag is a record that cannot be served, and why.
	UnservedTag struct {
		TagRecord
		Problem string `json:"problem"`
	}
	// TagRecord is a tag as users see it.
	TagRecord struct {
		Tag         string    `json:"tag"`
		MaxID       bus.ID    `json:"max_id"`
		Step        int64     `json:"step"`
		Description string    `json:"description"`
		Updated     time.Time `json:"updated"`
		// Order is [bus.OrderStrict], or empty for trend order. The step of a strict tag is 0.
		Order string `json:"order,omitempty"`
		// Opaque is the domain of an opaque tag: "63", "53" or "d9" to "d18". MaxID and events are about its numbers,
		// not its IDs.
		Opaque string `json:"opaque,omitempty"`
		TagRules
	}
	// TagRules are what an operator may set for a tag; see [allocator.Rules]. Zero fields are not set.
	TagRules struct {
		Quota   allocator.Quota    `json:"quota,omitzero"`
		Paused  bool               `json:"paused,omitempty"`
		Outlast allocator.Duration `json:"outlast,omitempty"` // "15m"
		Limit   bus.ID             `json:"limit,omitempty"`   // the largest ID
	}
	// TagChange is the reply to a change of a tag: its new record, or its last one if it is deleted.
	TagChange struct {
		TagRecord
		// Unheard are generators that fell silent in the last hour without saying that they
		// end. They may be cut off, and may hand out IDs as before the change until they return.
		Unheard []string `json:"unheard,omitempty"`
	}
	// TagAdvance is the reply to an advance of a tag: its new record, and where max_id was before.
	TagAdvance struct {
		TagChange
		Was bus.ID `json:"was"` // equal to MaxID if nothing showed that IDs above were in use
	}
	// AdvanceRequest asks to move max_id of a tag above all that is known to be in use.
	AdvanceRequest struct {
		Tag     string   `json:"tag"`
		MaxID   *bus.ID  `json:"max_id,omitempty"`  // at least so far
		Without []string `json:"without,omitempty"` // generators that need not be heard: what they know is lost
	}
	// EndLossRequest asks to end a loss of all tags.
	EndLossRequest struct {
		Without []string `json:"without,omitempty"` // generators that need not be heard: what they know is lost
	}
	// EndLossReply is the reply to an EndLossRequest.
	EndLossReply struct {
		Ended bool `json:"ended"` // false: no tags were lost
	}
	// TagCreate asks for a new tag; zero fields take their defaults.
	TagCreate struct {
		Tag         string  `json:"tag"`
		MaxID       *bus.ID `json:"max_id,omitempty"`
		Step        *int64  `json:"step,omitempty"` // not of a strict tag
		Description string  `json:"description,omitempty"`
		// Order is [bus.OrderTrend] (default) or [bus.OrderStrict]. It is for life.
		Order string `json:"order,omitempty"`
		// Opaque makes the tag opaque, for life, with IDs of 63 bits ("63"), 53 bits ("53"), or 9 to 18 decimal digits
		// ("d9" to "d18").
		Opaque string `json:"opaque,omitempty"`
		allocator.RulesChange
		// Force allows a limit below MaxID.
		Force   bool       `json:"force,omitempty"`
		Updated *time.Time `json:"updated,omitempty"` // ignored, so that a record can be sent as it was received
	}
	// TagUpdate asks for a change of the fields that are not nil.
	TagUpdate struct {
		Tag                   string  `json:"tag"`
		MaxID                 *bus.ID `json:"max_id,omitempty"`
		Step                  *int64  `json:"step,omitempty"`
		Description           *string `json:"description,omitempty"`
		allocator.RulesChange         // a zero removes a rule
		// Force allows a max_id that jumps by more than [allocator.MostJump] or beyond half of the IDs that are left, and
		// a limit below max_id.
		Force bool `json:"force,omitempty"`
	}
	// RevealRequest asks for the numbers of IDs of an opaque tag, at most [MostRevealed].
	RevealRequest struct {
		Tag string   `json:"tag"`
		IDs []bus.ID `json:"ids"`
	}
	// Revealed is the reply: the numbers in the order of their IDs. Whether they were handed out, a trace says.
	Revealed struct {
		Tag     string   `json:"tag"`
		Numbers []bus.ID `json:"numbers"`
	}
	tagName struct {
		Tag string `json:"tag"`
	}
)

// MostRevealed is how many IDs one request reveals.
const MostRevealed = 10_000

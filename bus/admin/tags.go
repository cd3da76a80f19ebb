package admin

import (
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/idspace"
)

// The requests and replies of leaf.admin.
type (
	// PageRequest asks for a page of a list: up to Limit entries (default and maximum 1,000) whose
	// tag starts with Prefix, contains Contains, and comes after After in byte order.
	PageRequest struct {
		Prefix   string `json:"prefix,omitempty"`
		Contains string `json:"contains,omitempty"`
		After    string `json:"after,omitempty"`
		Limit    int    `json:"limit,omitempty"`
	}
	// BuffersRequest is the request of leaf.admin.buffers: for a page, or for the named tags, at
	// most 100.
	BuffersRequest struct {
		PageRequest
		Tags []string `json:"tags,omitempty"`
	}
	// NodeName is the request and the reply of leaf.admin.nodes.forget.
	NodeName struct {
		Node string `json:"node"`
	}
	// KnownRequest is the request of leaf.admin.known: for a page of the tags that come after After
	// in byte order.
	KnownRequest struct {
		After string `json:"after,omitempty"`
	}
	// KnownPage is one generator's reply to leaf.admin.known. A generator that waits for its
	// installation answers too.
	KnownPage struct {
		Node         string     `json:"node"`
		Installation string     `json:"installation"` // that its data folder belongs to; empty: none
		Tags         []KnownTag `json:"tags"`
		Next         string     `json:"next"` // After of the next page; empty: this was the last
	}
	// KnownTag is how far a tag is known to be in use, whatever the store says.
	KnownTag struct {
		Tag string `json:"tag"`
		End bus.ID `json:"end"` // of all ranges: no ID from it on is known to be in use
		// Order is [idspace.OrderTrend] or [idspace.OrderStrict], "opaque" if the database knows
		// only that, and empty if no generator knows it, or if Opaque is known.
		Order  string `json:"order,omitempty"`
		Opaque string `json:"opaque,omitempty"` // its domain
	}
	// MissingTags is the reply of leaf.admin.tags.missing: tags that generators or events know, and
	// of which there is no record, because JetStream lost it, or a backup lacks it. Each must begin
	// at its End or above.
	MissingTags struct {
		Tags []KnownTag `json:"tags"`
		More int        `json:"more,omitempty"` // missing ones that did not fit into the reply
	}
	// TagsPage is the reply of leaf.admin.tags.list.
	TagsPage struct {
		Tags []TagRecord `json:"tags"`
		// Unserved are records that cannot be served: they are damaged, of a newer version, or
		// other programs made them.
		Unserved []UnservedTag `json:"unserved,omitempty"`
		Next     string        `json:"next"` // After of the next page; empty: this was the last
	}
	// UnservedTag is a record that cannot be served, and why.
	UnservedTag struct {
		TagRecord
		Problem string `json:"problem"`
	}
	// TagRecord is a tag as users see it, and the reply to a change: the new record, or the last
	// one of a deleted tag.
	TagRecord struct {
		Tag         string    `json:"tag"`
		MaxID       bus.ID    `json:"max_id,omitzero"` // 0 only of a record that cannot be used
		Step        int64     `json:"step"`
		Description string    `json:"description"`
		Updated     time.Time `json:"updated"`
		// Order is [idspace.OrderStrict], or empty for trend order. The step of a strict tag is 0.
		Order string `json:"order,omitempty"`
		// Opaque is the domain of an opaque tag: "63", "53" or "d9" to "d18". MaxID and events are
		// about its numbers, not its IDs.
		Opaque string `json:"opaque,omitempty"`
		TagRules
		// Unheard, in the reply to a change, are generators that fell silent in the last hour
		// without saying that they end. They may be cut off, and may hand out IDs as before the
		// change until they return.
		Unheard []string `json:"unheard,omitempty"`
	}
	// TagRules are what an operator may set for a tag; see docs/tags.md. Zero fields are not set.
	TagRules struct {
		Quota   idspace.Quota    `json:"quota,omitzero"`
		Paused  bool             `json:"paused,omitempty"`
		Outlast idspace.Duration `json:"outlast,omitempty"` // "15m"
		Limit   bus.ID           `json:"limit,omitempty"`   // the largest ID
	}
	// TagAdvance is the reply to an advance of a tag: its new record, and where max_id was before.
	TagAdvance struct {
		TagRecord
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
	// TagSpec is a tag as an operator wants it: the request that creates a tag or changes it, and
	// an entry in a file of tags. What is nil or empty stays as it is; a new tag has its default.
	TagSpec struct {
		Tag string `json:"tag" yaml:"tag"`
		// Order of a new tag, for life: [idspace.OrderTrend] (default) or [idspace.OrderStrict].
		// Opaque is the domain of a new opaque tag, for life: "63", "53" or "d9" to "d18".
		Order       string  `json:"order,omitempty" yaml:"order,omitempty"`
		Opaque      string  `json:"opaque,omitempty" yaml:"opaque,omitempty"`
		MaxID       *bus.ID `json:"max_id,omitempty" yaml:"max_id,omitempty"`
		Step        *int64  `json:"step,omitempty" yaml:"step,omitempty"` // not of a strict tag
		Description *string `json:"description,omitempty" yaml:"description,omitempty"`
		// RulesChange has the rules. A zero removes one.
		idspace.RulesChange `yaml:",inline"`
		// Force allows a max_id that jumps by more than 10^12 or beyond half of the IDs that are
		// left, and a limit below max_id.
		Force bool `json:"force,omitempty" yaml:"-"`
		// Updated is ignored: so a record can be sent as it was received.
		Updated *time.Time `json:"updated,omitempty" yaml:"updated,omitempty"`
	}
	// RevealRequest asks for the numbers of IDs of an opaque tag, at most [MostRevealed].
	RevealRequest struct {
		Tag string   `json:"tag"`
		IDs []bus.ID `json:"ids"`
	}
	// Revealed is the reply: the numbers in the order of their IDs. Whether they were handed out, a
	// trace says.
	Revealed struct {
		Tag     string   `json:"tag"`
		Numbers []bus.ID `json:"numbers"`
	}
	// TagName is the request of leaf.admin.tags.get and leaf.admin.tags.delete.
	TagName struct {
		Tag string `json:"tag"`
	}
)

// MostRevealed is how many IDs one request reveals.
const MostRevealed = 10_000

// Spec returns the spec that creates the tag again.
func (r TagRecord) Spec() TagSpec {
	s := TagSpec{Tag: r.Tag, Order: r.Order, Opaque: r.Opaque, MaxID: &r.MaxID}
	if r.Step != 0 {
		s.Step = &r.Step
	}
	if r.Description != "" {
		s.Description = &r.Description
	}
	if r.Quota != (idspace.Quota{}) {
		s.Quota = &r.Quota
	}
	if r.Paused {
		s.Paused = &r.Paused
	}
	if r.Outlast != 0 {
		s.Outlast = &r.Outlast
	}
	if r.Limit != 0 {
		s.Limit = (*idspace.Limit)(&r.Limit)
	}
	return s
}

package admin

import (
	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// The request and reply of leaf.admin.claims.
type (
	// ClaimsRequest asks how far tags are claimed. It names Tags, at most 1,000 and deleted ones too. Or it asks for a
	// page: up to 2,000 tags whose names come after After in byte order. The reply has fewer tags if more do not fit or
	// cannot be read in time. It has at least one, if there is one.
	ClaimsRequest struct {
		After string   `json:"after,omitempty"`
		Tags  []string `json:"tags,omitempty"`
	}
	// ClaimsPage is the reply to a [ClaimsRequest]. If the request names tags, the page may have only the first of
	// them. Ask for the rest again.
	ClaimsPage struct {
		Store  string      `json:"store"` // kv or mysql
		Claims []TagClaims `json:"claims"`
		Next   string      `json:"next"` // After of the next page; empty: this was the last
	}
	// TagClaims says how far a tag is claimed.
	TagClaims struct {
		Tag string `json:"tag"`
		// Order is [bus.OrderTrend] or [bus.OrderStrict]. Of a strict tag only the last claim is recorded: it has no
		// refill events. Empty: not known, because there is no record, it cannot be read, or the generator is of an
		// older version.
		Order string `json:"order,omitempty"`
		// Opaque is the domain of an opaque tag, as in TagRecord. All that follows is about its numbers.
		Opaque string `json:"opaque,omitempty"`
		// End is above all IDs that were claimed, by the tag's record. 0: there is no record,
		// and nothing was claimed; or Problem is set.
		End bus.ID `json:"end,omitempty"`
		// MaxID is the store's, read after End. 0: the store does not have the tag, or its record cannot be read.
		MaxID bus.ID `json:"max_id,omitempty"`
		// Last is the last claim, as the record has it; nil: the record has none.
		Last *allocator.Claim `json:"last,omitempty"`
		// Problem says why the record cannot be read.
		Problem string `json:"problem,omitempty"`
	}
)

package generator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

const (
	// maxClaimsPage is the most tags of a page of claims, and maxClaimsNamed the most that a request may name.
	maxClaimsPage  = 2000
	maxClaimsNamed = 1000
	// maxProblem is how many bytes the reason may have why a record cannot be read: it quotes the record.
	maxProblem = 500
)

// Records are what is written down of tags.
type Records interface {
	// Claimed returns how far a tag was claimed, of deleted tags too: from the ledger, or from the tag's record where
	// that is the ledger. It is the zero Entry if nothing was claimed.
	Claimed(ctx context.Context, tag string) (allocator.Entry, error)
	// Stored returns the store's own record of a tag, whatever the ledger says. If its max_id is below end, it is not from
	// a replica that lags, as far as the store can ensure that.
	Stored(ctx context.Context, tag string, end int64) (allocator.Tag, error)
}

// claims says how far tags are claimed. A reply has as many of the tags as fit into it, and as can be read in time.
func (g *Generator) claims(ctx context.Context, req admin.ClaimsRequest) (admin.ClaimsPage, error) {
	page := admin.ClaimsPage{Store: g.cfg.StoreKind, Claims: []admin.TagClaims{}}
	names, stored, more, err := g.claimNames(ctx, req)
	if err != nil {
		return page, err
	}
	end, _ := ctx.Deadline() // each administrative request has one
	enough := time.Now().Add(time.Until(end) / 4 * 3)
	for i, name := range names {
		if i > 0 && !time.Now().Before(enough) {
			names, more = names[:i], true
			break
		}
		c := admin.TagClaims{Tag: name}
		if allocator.CheckTag(name) == nil { // else another program made it, and nothing of it can be claimed
			if c, err = g.tagClaims(ctx, name, stored[name]); err != nil {
				return page, err
			}
		}
		page.Claims = append(page.Claims, c)
	}
	if n := fit(g, page.Claims, len(names)); n < len(names) {
		page.Claims, more = page.Claims[:n], true
	}
	if more && len(req.Tags) == 0 {
		page.Next = page.Claims[len(page.Claims)-1].Tag
	}
	return page, nil
}

// claimNames returns the tags that a request asks for, and the max_id that the store has of those it lists. more
// reports whether others come after them.
func (g *Generator) claimNames(ctx context.Context, req admin.ClaimsRequest) (names []string, stored map[string]int64, more bool, err error) {
	switch {
	case len(req.Tags) > maxClaimsNamed:
		return nil, nil, false, badRequest("%d tags are named, and at most %d may be", len(req.Tags), maxClaimsNamed)
	case len(req.Tags) > 0 && req.After != "":
		return nil, nil, false, badRequest("name tags, or ask for a page of all: not both")
	}
	for _, tag := range req.Tags {
		if err := allocator.CheckTag(tag); err != nil {
			return nil, nil, false, err
		}
	}
	if len(req.Tags) > 0 {
		return req.Tags, nil, false, nil
	}
	tags, err := g.cfg.Store.List(ctx, allocator.Query{After: req.After, Limit: maxClaimsPage + 1})
	if err != nil {
		return nil, nil, false, err
	}
	if more = len(tags) > maxClaimsPage; more {
		tags = tags[:maxClaimsPage]
	}
	stored = make(map[string]int64, len(tags))
	for _, t := range tags {
		names = append(names, t.Name)
		stored[t.Name] = t.MaxID
	}
	return names, stored, more, nil
}

// tagClaims says how far a tag is claimed. It reads the ledger before the store, because a generator writes the store
// first. maxID was read from the store before that; 0: it was not. If it is behind the ledger, it is read again.
func (g *Generator) tagClaims(ctx context.Context, tag string, maxID int64) (admin.TagClaims, error) {
	c := admin.TagClaims{Tag: tag}
	e, err := g.cfg.Records.Claimed(ctx, tag)
	switch {
	case errors.Is(err, allocator.ErrDamaged):
		c.Problem = fmt.Sprintf("%.*s", maxProblem, err)
	case err != nil:
		return c, err
	}
	c.End = bus.ID(e.End)
	if e.Last != (allocator.Claim{}) {
		c.Last = &e.Last
	}
	if maxID == 0 || maxID < e.End {
		t, err := g.cfg.Records.Stored(ctx, tag, e.End)
		switch {
		case errors.Is(err, allocator.ErrUnknownTag), errors.Is(err, allocator.ErrDamaged):
			t.MaxID = 0
		case err != nil:
			return c, err
		}
		maxID = t.MaxID
	}
	c.MaxID = bus.ID(maxID)
	if c.Problem == "" && (c.End != 0 || c.MaxID != 0 || e.Order != allocator.Trend) {
		c.Order, c.Opaque = e.Order.String(), string(e.Order.Domain())
	}
	return c, nil
}

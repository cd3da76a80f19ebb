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

// claims says how far tags are claimed. A reply has as many of the tags as fit into it, and as can be read in time.
func (l *lossAdmin) claims(ctx context.Context, req admin.ClaimsRequest) (admin.ClaimsPage, error) {
	page := admin.ClaimsPage{Store: l.cfg.StoreKind, Claims: []admin.TagClaims{}}
	names, more, err := l.claimNames(ctx, req)
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
			if c, err = l.tagClaims(ctx, name); err != nil {
				return page, err
			}
		}
		page.Claims = append(page.Claims, c)
	}
	if n := fit(l.cfg.Conn, page.Claims, len(names)); n < len(names) {
		page.Claims, more = page.Claims[:n], true
	}
	if more && len(req.Tags) == 0 {
		page.Next = page.Claims[len(page.Claims)-1].Tag
	}
	return page, nil
}

// claimNames returns the tags that a request asks for. more reports whether others come after them.
func (l *lossAdmin) claimNames(ctx context.Context, req admin.ClaimsRequest) (names []string, more bool, err error) {
	switch {
	case len(req.Tags) > maxClaimsNamed:
		return nil, false, badRequest("%d tags are named, and at most %d may be", len(req.Tags), maxClaimsNamed)
	case len(req.Tags) > 0 && req.After != "":
		return nil, false, badRequest("name tags, or ask for a page of all: not both")
	}
	for _, tag := range req.Tags {
		if err := allocator.CheckTag(tag); err != nil {
			return nil, false, err
		}
	}
	if len(req.Tags) > 0 {
		return req.Tags, false, nil
	}
	tags, err := l.alloc.List(ctx, allocator.Query{After: req.After, Limit: maxClaimsPage + 1})
	if err != nil {
		return nil, false, err
	}
	if more = len(tags) > maxClaimsPage; more {
		tags = tags[:maxClaimsPage]
	}
	for _, t := range tags {
		names = append(names, t.Name)
	}
	return names, more, nil
}

// tagClaims says how far a tag is claimed. It reads the record before the row, because a generator moves the row first.
func (l *lossAdmin) tagClaims(ctx context.Context, tag string) (admin.TagClaims, error) {
	c := admin.TagClaims{Tag: tag}
	s, err := l.alloc.Load(ctx, tag)
	switch {
	case errors.Is(err, allocator.ErrDamaged), errors.Is(err, allocator.ErrNewer):
		c.Problem = fmt.Sprintf("%.*s", maxProblem, err)
	case err != nil:
		return c, err
	}
	c.End = bus.ID(s.MaxID)
	if s.Last != (allocator.Claim{}) {
		c.Last = &s.Last
	}
	switch {
	case l.cfg.Numbers != nil && s.Order == allocator.Trend:
		row, err := l.cfg.Numbers.Peek(ctx, tag)
		if err != nil {
			return c, err
		}
		c.MaxID = bus.ID(row.MaxID)
	case !s.Deleted:
		c.MaxID = c.End
	}
	if c.Problem == "" && s.Revision != 0 {
		c.Order, c.Opaque = s.Order.String(), string(s.Order.Domain())
	}
	return c, nil
}

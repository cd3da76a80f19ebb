package generator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/internal/wire"
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
func (g *Generator) claims(ctx context.Context, req bus.ClaimsRequest) (bus.ClaimsPage, error) {
	page := bus.ClaimsPage{Store: g.cfg.StoreKind, Claims: []bus.TagClaims{}}
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
		c := bus.TagClaims{Tag: name}
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
func (g *Generator) claimNames(ctx context.Context, req bus.ClaimsRequest) (names []string, stored map[string]int64, more bool, err error) {
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
func (g *Generator) tagClaims(ctx context.Context, tag string, maxID int64) (bus.TagClaims, error) {
	c := bus.TagClaims{Tag: tag}
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

// evidence is where an audit reads.
func (g *Generator) evidence() audit.Source {
	return audit.Source{JS: g.cfg.JS, Claims: g.claims, Workers: g.workersList, Reveal: g.tagsReveal}
}

// audit compares what the ledger, the store and the events say of one tag.
func (g *Generator) audit(ctx context.Context, req bus.AuditRequest) (bus.TagAudit, error) {
	if err := allocator.CheckTag(req.Tag); err != nil {
		return bus.TagAudit{}, err
	}
	report, err := audit.Run(ctx, g.evidence(), audit.Options{Tags: []string{req.Tag}})
	if err != nil {
		return bus.TagAudit{}, tooLong(ctx, err)
	}
	t := report.Tags[0]
	if t.End == 0 && t.MaxID == 0 && t.Events == 0 && t.Problem == "" {
		return t, fmt.Errorf("%s: %w", req.Tag, allocator.ErrUnknownTag)
	}
	return t, nil
}

// trace says who claimed an ID.
func (g *Generator) trace(ctx context.Context, req bus.TraceRequest) (bus.Trace, error) {
	switch {
	case req.Snowflake != 0 && (req.Tag != "" || req.ID != 0):
		return bus.Trace{}, badRequest("name a tag and an id, or a snowflake: not both")
	case req.Snowflake != 0:
		p, err := g.cfg.Snowflake.Layout.Decode(int64(req.Snowflake))
		if err != nil {
			return bus.Trace{}, err
		}
		t, err := audit.TraceSnowflake(ctx, g.evidence(), decoded(int64(req.Snowflake), p))
		return t, tooLong(ctx, err)
	}
	if err := allocator.CheckTag(req.Tag); err != nil {
		return bus.Trace{}, err
	}
	if req.ID < 1 {
		return bus.Trace{}, badRequest("id is %d: IDs are at least 1", req.ID)
	}
	t, err := audit.TraceTag(ctx, g.evidence(), req.Tag, int64(req.ID))
	return t, tooLong(ctx, err)
}

// tooLong is the error of a reading that did not end in time. Else it is err.
func tooLong(ctx context.Context, err error) error {
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return &bus.Error{Code: 504, Reason: bus.TimedOut, Message: fmt.Sprintf("the evidence could not be read in time: wait longer, at most %v, "+
		"or use `leaf audit` and `leaf trace`, which read it themselves: %v", wire.MaxAdminTimeout, err)}
}

package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// maxPage is the most entries of a list.
const maxPage = 1000

func record(t allocator.Tag) bus.TagRecord {
	return bus.TagRecord{Tag: t.Name, MaxID: bus.ID(t.MaxID), Step: t.Step, Description: t.Description, Updated: t.Updated}
}

// pageLimit returns the page's limit, or an error.
func pageLimit(p bus.PageRequest) (limit int, err error) {
	switch {
	case p.Limit < 0 || p.Limit > maxPage:
		return 0, badRequest("limit is %d, not from 1 to %d", p.Limit, maxPage)
	case p.Limit == 0:
		return maxPage, nil
	}
	return p.Limit, nil
}

// pageQuery asks for the page, and for one entry more: it tells whether the page is
// the last.
func pageQuery(p bus.PageRequest, limit int) allocator.Query {
	return allocator.Query{Prefix: p.Prefix, Contains: p.Contains, After: p.After, Limit: limit + 1}
}

// fit returns how many of the entries fit into one reply.
func fit[T any](g *Generator, entries []T) int {
	room := int(g.cfg.Conn.MaxPayload()) - 1024 // for what is around the entries
	for i, e := range entries {
		if room -= len(wire.Encode(e)) + 1; room < 0 && i > 0 {
			return i
		}
	}
	return len(entries)
}

func (g *Generator) tagsList(ctx context.Context, req bus.PageRequest) (bus.TagsPage, error) {
	limit, err := pageLimit(req)
	if err != nil {
		return bus.TagsPage{}, err
	}
	tags, err := g.cfg.Store.List(ctx, pageQuery(req, limit))
	if err != nil {
		return bus.TagsPage{}, err
	}
	entries := make([]bus.UnservedTag, len(tags))
	for i, t := range tags {
		entries[i].TagRecord = record(t)
		if err := allocator.CheckTag(t.Name); err != nil {
			entries[i].Problem = err.Error()
		} else if err := allocator.CheckStep(t.Step, allocator.LimitStep); err != nil {
			entries[i].Problem = err.Error()
		}
	}
	page := bus.TagsPage{Tags: []bus.TagRecord{}}
	if n := min(fit(g, entries), limit); n < len(entries) {
		entries = entries[:n]
		page.Next = entries[n-1].Tag
	}
	for _, e := range entries {
		if e.Problem != "" {
			page.Unserved = append(page.Unserved, e)
			continue
		}
		page.Tags = append(page.Tags, e.TagRecord)
	}
	return page, nil
}

func (g *Generator) tagsGet(ctx context.Context, req tagName) (bus.TagRecord, error) {
	if err := allocator.CheckTag(req.Tag); err != nil {
		return bus.TagRecord{}, err
	}
	t, err := g.cfg.Store.Get(ctx, req.Tag)
	if err != nil {
		return bus.TagRecord{}, fmt.Errorf("%s: %w", req.Tag, err)
	}
	return record(t), nil
}

func (g *Generator) tagsCreate(ctx context.Context, req bus.TagCreate) (bus.TagChange, error) {
	t := allocator.Tag{Name: req.Tag, MaxID: 1, Step: min(allocator.DefaultStep, g.cfg.MaxStep), Description: req.Description}
	if req.MaxID != nil {
		t.MaxID = int64(*req.MaxID)
	}
	if req.Step != nil {
		t.Step = *req.Step
	}
	if err := cmp.Or(allocator.CheckTag(t.Name), allocator.CheckStep(t.Step, g.cfg.MaxStep),
		allocator.CheckDescription(t.Description)); err != nil {
		return bus.TagChange{}, err
	}
	t, unheard, err := g.create(ctx, t)
	if err != nil {
		return bus.TagChange{}, err
	}
	return bus.TagChange{TagRecord: record(t), Unheard: unheard}, nil
}

func (g *Generator) tagsUpdate(ctx context.Context, req bus.TagUpdate) (bus.TagChange, error) {
	if err := allocator.CheckTag(req.Tag); err != nil {
		return bus.TagChange{}, err
	}
	change := allocator.Change{MaxID: (*int64)(req.MaxID), Step: req.Step, Description: req.Description}
	if change == (allocator.Change{}) {
		return bus.TagChange{}, badRequest("nothing to change: give max_id, step or description")
	}
	if change.Step != nil {
		if err := allocator.CheckStep(*change.Step, g.cfg.MaxStep); err != nil {
			return bus.TagChange{}, err
		}
	}
	if change.Description != nil {
		if err := allocator.CheckDescription(*change.Description); err != nil {
			return bus.TagChange{}, err
		}
	}
	t, err := g.cfg.Store.Update(ctx, req.Tag, change)
	if err != nil {
		return bus.TagChange{}, fmt.Errorf("%s: %w", req.Tag, err)
	}
	g.publish(newEvent("tag.updated", t.Name, g.cfg.Node, bus.TagEvent{Node: g.cfg.Node, TagRecord: record(t)}))
	_, unheard, err := g.broadcastTag(ctx, t)
	if err != nil && change.MaxID != nil {
		return bus.TagChange{}, unconfirmed(err, "it may have happened: send it again")
	}
	return bus.TagChange{TagRecord: record(t), Unheard: unheard}, nil
}

func (g *Generator) tagsDelete(ctx context.Context, req tagName) (bus.TagChange, error) {
	if err := allocator.CheckTag(req.Tag); err != nil {
		return bus.TagChange{}, err
	}
	t, err := g.cfg.Store.Delete(ctx, req.Tag)
	if err != nil {
		return bus.TagChange{}, fmt.Errorf("%s: %w", req.Tag, err)
	}
	g.publish(newEvent("tag.deleted", t.Name, g.cfg.Node, bus.TagEvent{Node: g.cfg.Node, TagRecord: record(t)}))
	_, unheard, err := g.broadcastTag(ctx, t)
	if err != nil {
		return bus.TagChange{}, unconfirmed(err, "it is deleted, and they learn that from the store")
	}
	return bus.TagChange{TagRecord: record(t), Unheard: unheard}, nil
}

// unconfirmed is the error of a change that may not be in force everywhere.
func unconfirmed(err error, then string) error {
	return &bus.Error{Code: 504, Reason: bus.TimedOut, Message: fmt.Sprintf("%v; %s", err, then)}
}

// create adds a tag, at or above what any generator has seen of one of that
// name: its record may be gone without a trace. It returns who was not heard.
func (g *Generator) create(ctx context.Context, t allocator.Tag) (_ allocator.Tag, unheard []string, err error) {
	_, err = g.cfg.Store.Get(ctx, t.Name)
	if err == nil {
		return t, nil, fmt.Errorf("%w: %s", allocator.ErrExists, t.Name)
	}
	if !errors.Is(err, allocator.ErrUnknownTag) {
		return t, nil, err
	}
	if err := g.readPeerMarks(ctx); err != nil {
		return t, nil, fmt.Errorf("%w: %w", allocator.ErrUnavailable, err)
	}
	if err := g.hearOthers(ctx); err != nil {
		return t, nil, err
	}
	// Whoever still holds IDs of it, or is about to receive some, gives them up.
	seen, unheard, err := g.broadcastTag(ctx, allocator.Tag{Name: t.Name, Deleted: true})
	if err != nil {
		return t, nil, unconfirmed(err, "nothing is created: send it again")
	}
	if err := g.inTime(ctx); err != nil {
		return t, nil, err
	}
	t.MaxID = max(t.MaxID, seen, 1)
	if t, err = g.cfg.Store.Create(ctx, t); err != nil {
		return t, nil, err
	}
	g.alloc.Apply(t)
	g.publish(newEvent("tag.created", t.Name, g.cfg.Node, bus.TagEvent{Node: g.cfg.Node, TagRecord: record(t)}))
	return t, unheard, nil
}

// ensureTags creates the tags that were asked for at the start.
func (g *Generator) ensureTags(ctx context.Context) error {
	for _, t := range g.cfg.Tags {
		if err := g.ensure(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// ensure creates a tag. It neither changes one that is there nor revives one
// that was deleted.
func (g *Generator) ensure(ctx context.Context, t allocator.Tag) error {
	_, err := g.cfg.Store.Get(ctx, t.Name)
	switch {
	case errors.Is(err, allocator.ErrDeleted):
		g.log.Warn("the tag was deleted and stays so; `leaf tag add` creates it again", "tag", t.Name)
		return nil
	case errors.Is(err, allocator.ErrDamaged): // no reason not to serve the others
		g.log.Error("a tag that was asked for cannot be served", "tag", t.Name, "error", err)
		return nil
	case !errors.Is(err, allocator.ErrUnknownTag):
		return err
	}
	_, _, err = g.create(ctx, t)
	switch {
	case errors.Is(err, allocator.ErrBadValue):
		g.log.Error("a tag that was asked for cannot be made", "tag", t.Name, "error", err)
		return nil
	case errors.Is(err, allocator.ErrExists): // another generator was first, or the store takes another name for it
		g.log.Info("a tag that was asked for was not made", "tag", t.Name, "reason", err)
		return nil
	}
	return err
}

package bus

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// maxPage is the most entries of a list.
const maxPage = 1000

// The requests and replies of leaf.admin.
type (
	// PageRequest asks for a page of a list: up to Limit entries (at most and by
	// default 1,000) whose tag starts with Prefix, has Contains anywhere in it, and
	// comes after After; byte by byte, as [allocator.Query] has it.
	PageRequest struct {
		Prefix   string `json:"prefix,omitempty"`
		Contains string `json:"contains,omitempty"`
		After    string `json:"after,omitempty"`
		Limit    int    `json:"limit,omitempty"`
	}
	// TagsPage is the reply of leaf.admin.tags.list.
	TagsPage struct {
		Tags []TagRecord `json:"tags"`
		// Unserved are records that others made and that cannot be served.
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
		MaxID       ID        `json:"max_id"`
		Step        int64     `json:"step"`
		Description string    `json:"description"`
		Updated     time.Time `json:"updated"`
	}
	// TagChange is the reply to a change of a tag: its new record, or its last one if it is deleted.
	TagChange struct {
		TagRecord
		// Unheard are generators that fell silent in the last hour without saying that they
		// end. They may be cut off, and may hand out IDs as before the change until they return.
		Unheard []string `json:"unheard,omitempty"`
	}
	// TagCreate asks for a new tag; zero fields take their defaults.
	TagCreate struct {
		Tag         string     `json:"tag"`
		MaxID       *ID        `json:"max_id,omitempty"`
		Step        *int64     `json:"step,omitempty"`
		Description string     `json:"description,omitempty"`
		Updated     *time.Time `json:"updated,omitempty"` // ignored: a record may be sent as it was received
	}
	// TagUpdate asks for a change of the fields that are not nil.
	TagUpdate struct {
		Tag         string  `json:"tag"`
		MaxID       *ID     `json:"max_id,omitempty"`
		Step        *int64  `json:"step,omitempty"`
		Description *string `json:"description,omitempty"`
	}
	tagName struct {
		Tag string `json:"tag"`
	}
)

func record(t allocator.Tag) TagRecord {
	return TagRecord{t.Name, ID(t.MaxID), t.Step, t.Description, t.Updated}
}

// check returns the page's limit, or an error.
func (p PageRequest) check() (limit int, err error) {
	switch {
	case p.Limit < 0 || p.Limit > maxPage:
		return 0, badRequest("limit is %d, not from 1 to %d", p.Limit, maxPage)
	case p.Limit == 0:
		return maxPage, nil
	}
	return p.Limit, nil
}

// query asks for the page, and for one entry more: it tells whether the page is
// the last.
func (p PageRequest) query(limit int) allocator.Query {
	return allocator.Query{Prefix: p.Prefix, Contains: p.Contains, After: p.After, Limit: limit + 1}
}

// fit returns how many of the entries fit into one reply.
func fit[T any](g *Generator, entries []T) int {
	room := int(g.cfg.Conn.MaxPayload()) - 1024 // for what is around the entries
	for i, e := range entries {
		if room -= len(encode(e)) + 1; room < 0 && i > 0 {
			return i
		}
	}
	return len(entries)
}

func (g *Generator) tagsList(ctx context.Context, req PageRequest) (TagsPage, error) {
	limit, err := req.check()
	if err != nil {
		return TagsPage{}, err
	}
	tags, err := g.cfg.Store.List(ctx, req.query(limit))
	if err != nil {
		return TagsPage{}, err
	}
	entries := make([]UnservedTag, len(tags))
	for i, t := range tags {
		entries[i].TagRecord = record(t)
		if err := allocator.CheckTag(t.Name); err != nil {
			entries[i].Problem = err.Error()
		} else if err := allocator.CheckStep(t.Step, allocator.LimitStep); err != nil {
			entries[i].Problem = err.Error()
		}
	}
	page := TagsPage{Tags: []TagRecord{}}
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

func (g *Generator) tagsGet(ctx context.Context, req tagName) (TagRecord, error) {
	if err := allocator.CheckTag(req.Tag); err != nil {
		return TagRecord{}, err
	}
	t, err := g.cfg.Store.Get(ctx, req.Tag)
	if err != nil {
		return TagRecord{}, fmt.Errorf("%s: %w", req.Tag, err)
	}
	return record(t), nil
}

func (g *Generator) tagsCreate(ctx context.Context, req TagCreate) (TagChange, error) {
	t := allocator.Tag{Name: req.Tag, MaxID: 1, Step: min(allocator.DefaultStep, g.cfg.MaxStep), Description: req.Description}
	if req.MaxID != nil {
		t.MaxID = int64(*req.MaxID)
	}
	if req.Step != nil {
		t.Step = *req.Step
	}
	if err := cmp.Or(allocator.CheckTag(t.Name), allocator.CheckStep(t.Step, g.cfg.MaxStep),
		allocator.CheckDescription(t.Description)); err != nil {
		return TagChange{}, err
	}
	t, unheard, err := g.create(ctx, t)
	if err != nil {
		return TagChange{}, err
	}
	return TagChange{record(t), unheard}, nil
}

func (g *Generator) tagsUpdate(ctx context.Context, req TagUpdate) (TagChange, error) {
	if err := allocator.CheckTag(req.Tag); err != nil {
		return TagChange{}, err
	}
	change := allocator.Change{MaxID: (*int64)(req.MaxID), Step: req.Step, Description: req.Description}
	if change == (allocator.Change{}) {
		return TagChange{}, badRequest("nothing to change: give max_id, step or description")
	}
	if change.Step != nil {
		if err := allocator.CheckStep(*change.Step, g.cfg.MaxStep); err != nil {
			return TagChange{}, err
		}
	}
	if change.Description != nil {
		if err := allocator.CheckDescription(*change.Description); err != nil {
			return TagChange{}, err
		}
	}
	t, err := g.cfg.Store.Update(ctx, req.Tag, change)
	if err != nil {
		return TagChange{}, fmt.Errorf("%s: %w", req.Tag, err)
	}
	g.publish(newEvent("tag.updated", t.Name, g.cfg.Node, TagEvent{g.cfg.Node, record(t)}))
	_, unheard, err := g.spread(ctx, t)
	if err != nil && change.MaxID != nil {
		return TagChange{}, unconfirmed(err, "it may have happened: send it again")
	}
	return TagChange{record(t), unheard}, nil
}

func (g *Generator) tagsDelete(ctx context.Context, req tagName) (TagChange, error) {
	if err := allocator.CheckTag(req.Tag); err != nil {
		return TagChange{}, err
	}
	t, err := g.cfg.Store.Delete(ctx, req.Tag)
	if err != nil {
		return TagChange{}, fmt.Errorf("%s: %w", req.Tag, err)
	}
	g.publish(newEvent("tag.deleted", t.Name, g.cfg.Node, TagEvent{g.cfg.Node, record(t)}))
	_, unheard, err := g.spread(ctx, t)
	if err != nil {
		return TagChange{}, unconfirmed(err, "it is deleted, and they learn that from the store")
	}
	return TagChange{record(t), unheard}, nil
}

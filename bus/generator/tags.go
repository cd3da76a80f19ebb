package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// maxPage is the most entries of a list.
const maxPage = 1000

// tagName is the request of leaf.admin.tags.get and leaf.admin.tags.delete.
type tagName struct {
	Tag string `json:"tag"`
}

func record(t allocator.Tag) admin.TagRecord {
	r := admin.TagRecord{Tag: t.Name, MaxID: bus.ID(t.MaxID), Step: t.Step, Description: t.Description,
		Updated: t.Updated, Order: string(t.Order), TagRules: rules(t.Rules)}
	if d := t.Order.Domain(); d != "" {
		r.Order, r.Opaque, r.Limit = "", string(d), 0 // so that the record can be sent as it is, to create the tag again
	}
	return r
}

func rules(r allocator.Rules) admin.TagRules {
	return admin.TagRules{Quota: r.Quota, Paused: r.Paused, Outlast: r.Outlast, Limit: bus.ID(r.Limit)}
}

// pageLimit returns the page's limit, or an error.
func pageLimit(limit int) (int, error) {
	if limit < 0 || limit > maxPage {
		return 0, badRequest("limit is %d, not from 1 to %d", limit, maxPage)
	}
	return cmp.Or(limit, maxPage), nil
}

// pageQuery asks for the page and one entry more, which shows that the page is not the last.
func pageQuery(p admin.PageRequest, limit int) allocator.Query {
	return allocator.Query{Prefix: p.Prefix, Contains: p.Contains, After: p.After, Limit: limit + 1}
}

// fit returns how many of the entries fit into one reply: at most limit.
func fit[T any](g *Generator, entries []T, limit int) int {
	room := int(g.cfg.Conn.MaxPayload()) - 1024 // for what is around the entries
	for i, e := range entries {
		if room -= len(wire.Encode(e)) + 1; i == limit || room < 0 && i > 0 {
			return i
		}
	}
	return len(entries)
}

func (g *Generator) tagsList(ctx context.Context, req admin.PageRequest) (admin.TagsPage, error) {
	limit, err := pageLimit(req.Limit)
	if err != nil {
		return admin.TagsPage{}, err
	}
	ctx, cancel := g.storeTime(ctx)
	defer cancel()
	tags, err := g.alloc.List(ctx, pageQuery(req, limit))
	if err != nil {
		return admin.TagsPage{}, err
	}
	entries := make([]admin.UnservedTag, len(tags))
	for i, t := range tags {
		entries[i].TagRecord = record(t)
		if err := allocator.CheckTag(t.Name); err != nil {
			entries[i].Problem = err.Error()
		} else if err := allocator.CheckStepOf(t.Order, t.Step, allocator.LimitStep); err != nil {
			entries[i].Problem = err.Error()
		}
	}
	page := admin.TagsPage{Tags: []admin.TagRecord{}}
	if n := fit(g, entries, limit); n < len(entries) {
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

func (g *Generator) tagsGet(ctx context.Context, req tagName) (admin.TagRecord, error) {
	t, err := g.get(ctx, req.Tag)
	if err != nil {
		return admin.TagRecord{}, err
	}
	return record(t.Tag), nil
}

// get reads a tag's record for an operator.
func (g *Generator) get(ctx context.Context, tag string) (allocator.Stored, error) {
	if err := allocator.CheckTag(tag); err != nil {
		return allocator.Stored{}, err
	}
	ctx, cancel := g.storeTime(ctx)
	defer cancel()
	t, err := g.alloc.Get(ctx, tag)
	if err != nil {
		return t, fmt.Errorf("%s: %w", tag, err)
	}
	return t, nil
}

func (g *Generator) tagsCreate(ctx context.Context, req admin.TagCreate) (admin.TagChange, error) {
	t := allocator.Tag{
		Name: req.Tag, MaxID: 1, Step: min(allocator.DefaultStep, g.cfg.MaxStep), Description: req.Description}
	if req.MaxID != nil {
		t.MaxID = int64(*req.MaxID)
	}
	var err error
	if t.Order, err = orderOf(req); t.Order == allocator.Strict {
		t.Step = 0
	}
	if req.Step != nil {
		t.Step = *req.Step
	}
	if err := cmp.Or(allocator.CheckTag(t.Name), err, allocator.CheckStepOf(t.Order, t.Step, g.cfg.MaxStep),
		allocator.CheckDescription(t.Description)); err != nil {
		return admin.TagChange{}, err
	}
	if t.Rules, err = allocator.NewRules(req.RulesChange, t.Order); err != nil {
		return admin.TagChange{}, err
	}
	if !req.Force {
		// A max_id alone is no typo: the IDs of an old system may be large.
		at := allocator.Tag{MaxID: max(t.MaxID, g.alloc.Seen(t.Name))}
		if err := at.CheckLoss(allocator.Change{RulesChange: req.RulesChange}); err != nil {
			return admin.TagChange{}, err
		}
	}
	seen, err := g.seenInEvents(ctx, t.Name)
	if err != nil {
		return admin.TagChange{}, err
	}
	return g.create(ctx, t, seen, false)
}

// orderOf returns the order of a new tag.
func orderOf(req admin.TagCreate) (allocator.Order, error) {
	o, err := allocator.ParseOrder(req.Order)
	if err != nil || req.Opaque == "" {
		return o, err
	}
	if o == allocator.Strict {
		return o, badRequest("a tag is strict or opaque: the IDs of an opaque tag are in no order")
	}
	d, err := opaque.ParseDomain(req.Opaque)
	if err != nil {
		return o, badRequest("opaque: %v", err)
	}
	return allocator.OpaqueOrder(d), nil
}

func (g *Generator) tagsUpdate(ctx context.Context, req admin.TagUpdate) (admin.TagChange, error) {
	if err := allocator.CheckTag(req.Tag); err != nil {
		return admin.TagChange{}, err
	}
	change := allocator.Change{
		MaxID: (*int64)(req.MaxID), Step: req.Step, Description: req.Description, RulesChange: req.RulesChange}
	if change == (allocator.Change{}) {
		return admin.TagChange{}, badRequest("nothing to change: give max_id, step, description, quota, paused, outlast or limit")
	}
	if change.Step != nil && *change.Step != 0 { // the store knows whether the tag is strict
		if err := allocator.CheckStep(*change.Step, g.cfg.MaxStep); err != nil {
			return admin.TagChange{}, err
		}
	}
	if change.Description != nil {
		if err := allocator.CheckDescription(*change.Description); err != nil {
			return admin.TagChange{}, err
		}
	}
	release := g.hold(req.Tag)
	storing, cancel := g.storeTime(ctx)
	was, t, err := g.alloc.Change(storing, req.Tag, change, req.Force)
	cancel()
	if err != nil {
		release()
		return admin.TagChange{}, fmt.Errorf("%s: %w", req.Tag, err)
	}
	changed, err := g.announceChange(ctx, "tag.updated", t)
	g.publishEnding(was, t.Tag)
	if err != nil && (change.MaxID != nil || change.RulesChange != (allocator.RulesChange{})) {
		return admin.TagChange{}, unconfirmed(err, "it may have happened: send it again")
	}
	return changed, nil
}

// publishEnding publishes that an operator's change began or ended an episode of [allocator.Ending].
func (g *Generator) publishEnding(was, is allocator.Tag) {
	if was.Name == "" || was.Ending(was.MaxID) == is.Ending(is.MaxID) {
		return
	}
	if is.Ending(is.MaxID) {
		g.publish(allocatorEvent(g.cfg.Node, g.cfg.StoreKind, is.NewEnding()))
	} else {
		g.publishEvent("segment.recovered", is.Name, events.Recovered{Node: g.cfg.Node, Tag: is.Name, Episode: "ending"})
	}
}

func (g *Generator) tagsDelete(ctx context.Context, req tagName) (admin.TagChange, error) {
	if err := allocator.CheckTag(req.Tag); err != nil {
		return admin.TagChange{}, err
	}
	release := g.hold(req.Tag)
	storing, cancel := g.storeTime(ctx)
	defer cancel()
	t, err := g.alloc.Delete(storing, req.Tag)
	if err != nil {
		release()
		return admin.TagChange{}, fmt.Errorf("%s: %w", req.Tag, err)
	}
	changed, err := g.announceChange(ctx, "tag.deleted", t)
	g.publishEnding(t.Tag, allocator.Tag{Name: t.Name})
	if err != nil {
		return admin.TagChange{}, unconfirmed(err, "it is deleted, and they will learn that from the store")
	}
	return changed, nil
}

// announceChange publishes the event of a changed tag, and waits until all generators have
// the change in force.
func (g *Generator) announceChange(ctx context.Context, event string, s allocator.Stored) (admin.TagChange, error) {
	g.publishTag(event, s.Tag)
	s, unheard, err := g.confirm(ctx, s)
	return admin.TagChange{TagRecord: record(s.Tag), Unheard: unheard}, err
}

func (g *Generator) publishTag(event string, t allocator.Tag) {
	g.publishEvent(event, t.Name, events.Tag{Node: g.cfg.Node, TagRecord: record(t)})
}

// unconfirmed is the error of a change that some generators may not have applied.
func unconfirmed(err error, then string) error {
	return &bus.Error{Code: 504, Reason: bus.TimedOut, Message: fmt.Sprintf("%v; %s", err, then)}
}

// create adds a tag, above all that the generators and the events know of a tag with that name: an earlier record may
// be lost. seen is what the events know. A max_id above 1 says that all IDs below are in use: the other generators
// drop those that they have. It has all the time of its sender, because the other generators are asked.
func (g *Generator) create(ctx context.Context, t allocator.Tag, seen int64, onlyNew bool) (admin.TagChange, error) {
	s, err := g.alloc.Create(ctx, t, seen, onlyNew)
	if err != nil {
		return admin.TagChange{}, err
	}
	g.publishEnding(allocator.Tag{Name: s.Name}, s.Tag)
	if s.Floor == 0 && s.Version == 0 { // no generator can have anything of it
		g.push(s)
		g.publishTag("tag.created", s.Tag)
		return admin.TagChange{TagRecord: record(s.Tag)}, nil
	}
	made, err := g.announceChange(ctx, "tag.created", s)
	if err != nil {
		return admin.TagChange{}, unconfirmed(err, "the tag is created, and they will learn that from its record")
	}
	return made, nil
}

// ensureTags creates the tags of the start.
func (g *Generator) ensureTags(ctx context.Context) error {
	for _, t := range g.cfg.Tags {
		if err := g.ensure(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// ensure creates a tag of the start. It changes no tag that exists, and creates none that was deleted or that has lost
// its record: a generator that is not heard may know more, so an operator says where it begins. A tag that cannot be
// served must not stop the others.
func (g *Generator) ensure(ctx context.Context, t allocator.Tag) error {
	s, err := g.alloc.Get(ctx, t.Name)
	switch {
	case err == nil && s.Last.First == 0: // an attempt, or a start, before this one may have ended before the row
		return g.alloc.Complete(ctx, s.Tag)
	case err == nil:
		return nil
	case errors.Is(err, allocator.ErrDeleted):
		g.log.Warn("a tag of --tag was deleted before, so it is not created; `leaf tag add` creates it again", "tag", t.Name)
		return nil
	case errors.Is(err, allocator.ErrDamaged), errors.Is(err, allocator.ErrNewer):
		g.log.Error("a tag of --tag cannot be served", "tag", t.Name, "error", err)
		return nil
	case errors.Is(err, allocator.ErrTagsLost):
		g.log.Error("a tag of --tag is not created, because the records of all tags are lost", "tag", t.Name, "error", err)
		return nil
	case !errors.Is(err, allocator.ErrUnknownTag):
		return err
	}
	seen, err := g.seenInEvents(ctx, t.Name)
	if err == nil {
		_, err = g.create(ctx, t, seen, true)
	}
	_, lost := errors.AsType[*allocator.LostError](err)
	switch {
	case lost, errors.Is(err, allocator.ErrBadValue), errors.Is(err, allocator.ErrTagsLost),
		errors.Is(err, allocator.ErrConflict) && ctx.Err() == nil: // the name is, or was, of another kind
		g.log.Error("a tag of --tag cannot be created", "tag", t.Name, "error", err)
		return nil
	case errors.Is(err, allocator.ErrExists): // another generator was first, or the database takes another name for it
		g.log.Info("a tag of --tag was not created", "tag", t.Name, "reason", err)
		return nil
	}
	return err
}

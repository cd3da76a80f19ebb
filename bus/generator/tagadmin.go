package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/idspace"
)

// eventsPatience is how long a creation waits for what the events say of the name. The stream may
// be away for long.
const eventsPatience = time.Second

// tagAdmin does what operators ask of tags.
//
//	create, ensureAll ──── add ───────┐
//	update, advance, delete ─ commit ─┴── announce   the events; then it waits until all use it
//
// Its methods are safe for concurrent use. It has no lock, because it remembers nothing.
type tagAdmin struct {
	*base
	exchange *exchange
	passing  *passing
	findings *findings
}

func record(t allocator.Tag) admin.TagRecord {
	r := admin.TagRecord{Tag: t.Name, MaxID: bus.ID(t.MaxID), Step: t.Step, Description: t.Description,
		Updated: t.Updated, Order: string(t.Order), TagRules: rules(t.Rules)}
	if d := t.Order.Domain(); d != "" {
		// So that the record can be sent as it is, to create the tag again.
		r.Order, r.Opaque, r.Limit = "", string(d), 0
	}
	return r
}

func rules(r allocator.Rules) admin.TagRules {
	return admin.TagRules{Quota: r.Quota, Paused: r.Paused, Outlast: r.Outlast, Limit: bus.ID(r.Limit)}
}

func (t *tagAdmin) list(ctx context.Context, req admin.PageRequest) (admin.TagsPage, error) {
	page := admin.TagsPage{Tags: []admin.TagRecord{}}
	limit, err := pageLimit(req.Limit)
	if err != nil {
		return page, err
	}
	ctx, cancel := t.passing.storeTime(ctx)
	defer cancel()
	tags, err := t.alloc.List(ctx, pageQuery(req, limit))
	if err != nil {
		return page, err
	}
	entries := make([]admin.UnservedTag, len(tags))
	for i, tag := range tags {
		entries[i].TagRecord = record(tag)
		err := idspace.CheckTag(tag.Name)
		if err == nil && tag.MaxID == 0 { // its record cannot be used: why?
			_, err = t.alloc.Load(ctx, tag.Name)
		}
		err = cmp.Or(err, allocator.CheckStepOf(tag.Order, tag.Step, allocator.LimitStep))
		if err != nil {
			entries[i].Problem = err.Error()
		}
	}
	if n := fit(t.cfg.Conn, entries, limit); n < len(entries) {
		entries = entries[:n]
		page.Next = entries[n-1].Tag
	}
	for _, e := range entries {
		if e.Problem != "" {
			page.Unserved = append(page.Unserved, e)
		} else {
			page.Tags = append(page.Tags, e.TagRecord)
		}
	}
	return page, nil
}

func (t *tagAdmin) get(ctx context.Context, req admin.TagName) (admin.TagRecord, error) {
	s, err := t.stored(ctx, req.Tag)
	return record(s.Tag), err
}

// stored reads a tag's record for an operator.
func (t *tagAdmin) stored(ctx context.Context, tag string) (allocator.Stored, error) {
	if err := idspace.CheckTag(tag); err != nil {
		return allocator.Stored{}, err
	}
	ctx, cancel := t.passing.storeTime(ctx)
	defer cancel()
	s, err := t.alloc.Get(ctx, tag)
	if err != nil {
		return s, fmt.Errorf("%s: %w", tag, err)
	}
	return s, nil
}

// reveal returns the numbers of IDs of an opaque tag.
func (t *tagAdmin) reveal(ctx context.Context, req admin.RevealRequest) (admin.Revealed, error) {
	none := admin.Revealed{}
	if err := idspace.CheckTag(req.Tag); err != nil {
		return none, err
	}
	if n := len(req.IDs); n < 1 || n > admin.MostRevealed {
		return none, badRequest("%d IDs: want 1 to %d", n, admin.MostRevealed)
	}
	s, err := t.alloc.Load(ctx, req.Tag)
	switch {
	case err != nil:
		return none, err
	case s.Revision == 0:
		return none, fmt.Errorf("%s: %w", req.Tag, allocator.ErrUnknownTag)
	case s.Order.Domain() == "":
		return none, badRequest("%s is not opaque: its numbers are its IDs", req.Tag)
	}
	p, err := t.cfg.Keys.Permutation(ctx, s.Tag)
	if err != nil {
		return none, err
	}
	r := admin.Revealed{Tag: req.Tag, Numbers: make([]bus.ID, len(req.IDs))}
	for i, id := range req.IDs {
		if !p.Has(int64(id)) {
			return none, badRequest("%d is no ID of %s: they are from 1 to %d", id, req.Tag, p.Domain().Last())
		}
		r.Numbers[i] = bus.ID(p.Reveal(int64(id)))
	}
	return r, nil
}

func (t *tagAdmin) create(ctx context.Context, req admin.TagSpec) (admin.TagRecord, error) {
	tag, err := newTag(req, t.cfg.MaxStep)
	if err == nil && !req.Force {
		// A max_id alone is no typo: the IDs of an old system may be large.
		at := allocator.Tag{MaxID: max(tag.MaxID, t.alloc.Seen(tag.Name))}
		err = at.CheckLoss(allocator.Change{RulesChange: req.RulesChange})
	}
	if err != nil {
		return admin.TagRecord{}, err
	}
	return t.add(ctx, tag, false)
}

// newTag returns the tag that a request asks for.
func newTag(req admin.TagSpec, maxStep int64) (tag allocator.Tag, err error) {
	tag = allocator.Tag{
		Name: req.Tag, MaxID: 1, Step: min(allocator.DefaultStep, maxStep)}
	if req.MaxID != nil {
		tag.MaxID = int64(*req.MaxID)
	}
	if req.Description != nil {
		tag.Description = *req.Description
	}
	if tag.Order, err = allocator.NewOrder(req.Order, req.Opaque); tag.Order == allocator.Strict {
		tag.Step = 0
	}
	if req.Step != nil {
		tag.Step = *req.Step
	}
	err = cmp.Or(idspace.CheckTag(tag.Name), err, allocator.CheckStepOf(tag.Order, tag.Step, maxStep),
		allocator.CheckDescription(tag.Description))
	if err == nil {
		tag.Rules, err = allocator.NewRules(req.RulesChange, tag.Order)
	}
	return tag, err
}

// add adds a tag, above all that the generators and the events know of a tag with that name: an
// earlier record may be lost. A max_id above 1 says that all IDs below are in use: the other
// generators drop those that they have. It has all the time of its sender, because the other
// generators are asked. onlyNew: the name must never have been in use.
func (t *tagAdmin) add(ctx context.Context, tag allocator.Tag, onlyNew bool) (admin.TagRecord, error) {
	seen, err := t.seenInEvents(ctx, tag.Name)
	if err != nil {
		return admin.TagRecord{}, err
	}
	s, err := t.alloc.Create(ctx, tag, seen, onlyNew)
	if err != nil {
		return admin.TagRecord{}, err
	}
	return t.announce(ctx, "tag.created", allocator.Tag{Name: s.Name}, s,
		"the tag is created, and they will learn that from its record")
}

// seenInEvents is how far the events know a tag without a record to be in use; 0: they do not know
// the name, or it has a record, which has the last word. Events are evidence of last resort: all
// generators that knew the tag may be gone.
func (t *tagAdmin) seenInEvents(ctx context.Context, tag string) (seen int64, err error) {
	s, err := t.alloc.Load(ctx, tag)
	if errors.Is(err, allocator.ErrDamaged) { // its creation says more
		return 0, nil
	}
	if err != nil || s.Revision != 0 {
		return 0, err
	}
	read, cancel := context.WithTimeout(ctx, eventsPatience)
	defer cancel()
	// a stream of events that cannot be had must not stop anything
	if seen, err = audit.EndInEvents(read, t.cfg.JS, tag); err != nil {
		t.cfg.Log.Warn("a tag is created without a look at the events of that name", "tag", tag, "error", err)
	}
	return seen, nil
}

// ensureAll creates the tags of the start.
func (t *tagAdmin) ensureAll(ctx context.Context) error {
	for _, tag := range t.cfg.Tags {
		if err := t.ensure(ctx, tag); err != nil {
			return err
		}
	}
	return nil
}

// refusals are the errors of a tag of the start that another attempt would meet again.
var refusals = []error{allocator.ErrDeleted, allocator.ErrDamaged, allocator.ErrNewer, allocator.ErrTagsLost,
	idspace.ErrBadValue, allocator.ErrConflict}

// ensure creates a tag of the start. It changes no tag that exists, and creates none that was
// deleted or that has lost its record: a generator that is not heard may know more, so an operator
// says where it begins. A tag that cannot be served must not stop the others.
func (t *tagAdmin) ensure(ctx context.Context, tag allocator.Tag) error {
	s, err := t.alloc.Get(ctx, tag.Name)
	switch {
	case err == nil && s.Last.First == 0: // an attempt, or a start, before this one may have ended before the row
		return t.alloc.Complete(ctx, s.Tag)
	case errors.Is(err, allocator.ErrUnknownTag) && !errors.Is(err, allocator.ErrDeleted):
		_, err = t.add(ctx, tag, true)
	}
	switch {
	case errors.Is(err, allocator.ErrExists): // another generator was first, or the database takes another name for it
		t.cfg.Log.Info("a tag of --tag was not created", "tag", tag.Name, "reason", err)
		return nil
	case ctx.Err() == nil && slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }):
		t.cfg.Log.Warn("a tag of --tag is not created; `leaf tag add` may do it", "tag", tag.Name, "error", err)
		return nil
	}
	return err
}

func (t *tagAdmin) update(ctx context.Context, req admin.TagSpec) (admin.TagRecord, error) {
	change := allocator.Change{
		MaxID: (*int64)(req.MaxID), Step: req.Step, Description: req.Description, RulesChange: req.RulesChange}
	err := idspace.CheckTag(req.Tag)
	if err == nil && req.Order+req.Opaque != "" {
		err = badRequest("a tag has its order and its domain for life: leave out order and opaque")
	}
	if err == nil && change == (allocator.Change{}) {
		err = badRequest("nothing to change: give max_id, step, description, quota, paused, outlast or limit")
	}
	if err == nil && change.Step != nil && *change.Step != 0 { // the store knows whether the tag is strict
		err = allocator.CheckStep(*change.Step, t.cfg.MaxStep)
	}
	if err == nil && change.Description != nil {
		err = allocator.CheckDescription(*change.Description)
	}
	if err != nil {
		return admin.TagRecord{}, err
	}
	unsure := "" // without it nobody relies on the change
	if change.MaxID != nil || change.RulesChange != (idspace.RulesChange{}) {
		unsure = "it may have happened: send it again"
	}
	return t.commit(ctx, req.Tag, "tag.updated", unsure,
		func(ctx context.Context) (was allocator.Tag, is allocator.Stored, err error) {
			return t.alloc.Change(ctx, req.Tag, change, req.Force)
		})
}

func (t *tagAdmin) delete(ctx context.Context, req admin.TagName) (admin.TagRecord, error) {
	if err := idspace.CheckTag(req.Tag); err != nil {
		return admin.TagRecord{}, err
	}
	return t.commit(ctx, req.Tag, "tag.deleted", "it is deleted, and they will learn that from the store",
		func(ctx context.Context) (was allocator.Tag, is allocator.Stored, err error) {
			is, err = t.alloc.Delete(ctx, req.Tag)
			was, was.Deleted = is.Tag, false
			return was, is, err
		})
}

// commit lets f change the record of a tag. Meanwhile all generators keep back the claims of the
// tag, if it is strict.
func (t *tagAdmin) commit(
	ctx context.Context, tag, event, unsure string, f func(context.Context) (allocator.Tag, allocator.Stored, error),
) (admin.TagRecord, error) {
	release := t.exchange.hold(tag)
	within, cancel := t.passing.storeTime(ctx)
	defer cancel()
	was, is, err := f(within)
	if err != nil {
		release()
		return admin.TagRecord{}, fmt.Errorf("%s: %w", tag, err)
	}
	return t.announce(ctx, event, was, is, unsure)
}

// announce publishes that a tag was changed, and waits until all generators have the change in
// force. If some do not confirm that, unsure says what became of it; empty: it does not matter.
func (t *tagAdmin) announce(
	ctx context.Context, event string, was allocator.Tag, is allocator.Stored, unsure string,
) (admin.TagRecord, error) {
	node := t.cfg.Node
	t.findings.publish(event, is.Name, events.Tag{Node: node, TagRecord: record(is.Tag)})
	t.publishEnding(was, is.Tag)
	if was.MaxID+is.Floor == 0 && is.Version == 0 { // it is new, and no generator can have anything of it
		t.exchange.push(is)
		return record(is.Tag), nil
	}
	is, unheard, err := t.exchange.confirm(ctx, is)
	if err != nil && unsure != "" {
		return admin.TagRecord{}, unconfirmed(err, unsure)
	}
	r := record(is.Tag)
	r.Unheard = unheard
	return r, nil
}

// publishEnding publishes that an operator's change began or ended an episode of
// [allocator.Ending].
func (t *tagAdmin) publishEnding(was, is allocator.Tag) {
	ending := func(t allocator.Tag) bool { return !t.Deleted && t.Ending(t.MaxID) }
	switch node := t.cfg.Node; {
	case was.Name == "" || ending(was) == ending(is):
	case ending(is):
		t.findings.publish(allocatorEvent(node, t.cfg.StoreKind, is.NewEnding()))
	default:
		over := events.Recovered{Node: node, Tag: is.Name, Episode: "ending"}
		t.findings.publish("segment.recovered", is.Name, over)
	}
}

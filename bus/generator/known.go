package generator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// eventsPatience is how long a creation waits for what the events say of the name. The stream may be away for long.
const eventsPatience = time.Second

// known says how far this generator knows tags to be in use, whatever the store says. A page has as many names as fit.
func (g *Generator) known(_ context.Context, req admin.KnownRequest) (admin.KnownPage, error) {
	page := admin.KnownPage{Node: g.cfg.Node, Installation: g.installation(), Tags: []admin.KnownTag{}}
	if page.Installation == "" { // it waits for JetStream, and its data folder says which one
		page.Installation = g.cfg.Installation
	}
	ends := make(map[string]int64)
	g.cfg.Marks.Each(func(tag string, end int64) {
		if end > 1 && tag > req.After {
			ends[tag] = end
		}
	})
	for _, tag := range slices.Sorted(maps.Keys(ends)) {
		t := admin.KnownTag{Tag: tag, End: bus.ID(max(ends[tag], g.alloc.Seen(tag)))}
		if g.alloc.Order(tag) == allocator.Strict {
			t.Order = bus.OrderStrict
		}
		if p, _ := g.cfg.Keys.Known(tag); p != nil {
			t.Opaque = string(p.Domain())
		}
		page.Tags = append(page.Tags, t)
	}
	if n := fit(g, page.Tags, len(page.Tags)); n < len(page.Tags) {
		page.Tags = page.Tags[:n]
		page.Next = page.Tags[n-1].Tag
	}
	return page, nil
}

// unrecorded reports whether the store has no record of a name, not even that of a deletion.
func (g *Generator) unrecorded(ctx context.Context, name string) (bool, error) {
	ctx, cancel := g.storeTime(ctx)
	defer cancel()
	_, err := g.cfg.Store.Get(ctx, name)
	if errors.Is(err, allocator.ErrUnknownTag) {
		return !errors.Is(err, allocator.ErrDeleted), nil
	}
	return false, err
}

// seenOfLost is how far the generators and the events know a new tag to be in use; 0: nothing is known of the name.
// If it has a record, the store has the last word, and no other is asked: the question could change the step that
// they go by.
func (g *Generator) seenOfLost(ctx context.Context, t allocator.Tag) (seen int64, err error) {
	if unrecorded, err := g.unrecorded(ctx, t.Name); !unrecorded {
		return 0, err
	}
	err = g.hearPeers(ctx)
	if err == nil {
		seen, _, err = g.broadcastTag(ctx, allocator.Tag{Name: t.Name, MaxID: 1, Step: t.Step, Order: t.Order})
	}
	if err != nil {
		return 0, unconfirmed(err, "the tag is not created: send it again")
	}
	if seen <= 1 { // the question itself says 1
		seen = 0
	}
	read, cancel := context.WithTimeout(ctx, eventsPatience)
	defer cancel()
	err = LastRefills(read, g.cfg.JS, t.Name, func(_ string, end int64) { seen = max(seen, end) })
	if err == nil {
		err = LastChanges(read, g.cfg.JS, t.Name, func(r admin.TagRecord, _ bool) { seen = max(seen, int64(r.MaxID)) })
	}
	if err != nil { // a stream of events that cannot be had must not stop anything
		g.log.Warn("a tag is created without a look at the events of that name", "tag", t.Name, "error", err)
	}
	return seen, nil
}

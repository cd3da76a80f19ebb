package generator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

// eventsPatience is how long a creation waits for what the events say of the name. The stream may be away for long.
const eventsPatience = time.Second

// known says how far this generator knows tags to be in use, whatever the store says. A page has as many names as fit.
func (g *Generator) known(_ context.Context, req admin.KnownRequest) (admin.KnownPage, error) {
	page := admin.KnownPage{Node: g.cfg.Node, Installation: g.installation(), Tags: []admin.KnownTag{}}
	if page.Installation == "" { // it waits for JetStream, and its data folder says which one
		page.Installation = g.cfg.Installation
	}
	var names []string
	g.cfg.Index.Each(func(tag string, end int64) {
		if end > 1 && tag > req.After {
			names = append(names, tag)
		}
	})
	slices.Sort(names)
	for _, tag := range names {
		k := g.alloc.Known(tag)
		t := admin.KnownTag{Tag: tag, End: bus.ID(k.End), Opaque: string(k.Order.Domain())}
		if k.Order == allocator.Strict || g.alloc.Order(tag) == allocator.Strict {
			t.Order = bus.OrderStrict
		}
		page.Tags = append(page.Tags, t)
	}
	if n := fit(g, page.Tags, len(page.Tags)); n < len(page.Tags) {
		page.Tags = page.Tags[:n]
		page.Next = page.Tags[n-1].Tag
	}
	return page, nil
}

// seenInEvents is how far the events know a tag without a record to be in use; 0: they do not know the name, or it has
// a record, which has the last word.
func (g *Generator) seenInEvents(ctx context.Context, tag string) (seen int64, err error) {
	s, err := g.alloc.Load(ctx, tag)
	if err != nil || s.Revision != 0 {
		if errors.Is(err, allocator.ErrDamaged) { // its creation says more
			err = nil
		}
		return 0, err
	}
	read, cancel := context.WithTimeout(ctx, eventsPatience)
	defer cancel()
	err = LastRefills(read, g.cfg.JS, tag, func(r events.Refill) { seen = max(seen, r.Last+1) })
	if err == nil {
		err = LastChanges(read, g.cfg.JS, tag, func(r admin.TagRecord, _ bool) { seen = max(seen, int64(r.MaxID)) })
	}
	if err != nil { // a stream of events that cannot be had must not stop anything
		g.log.Warn("a tag is created without a look at the events of that name", "tag", tag, "error", err)
	}
	return seen, nil
}

package generator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

// tagsAdvance moves max_id of a tag above all that somebody knows to be in use, whatever its record says: the generators that are heard, and
// the last refill event. It is for what nobody running knows by itself: these raise a record that was set back. A generator that made
// the last claim, by the record or by the event, and that is not heard may know more: then an operator must say so.
func (g *Generator) tagsAdvance(ctx context.Context, req admin.AdvanceRequest) (admin.TagAdvance, error) {
	none := admin.TagAdvance{}
	s, err := g.get(ctx, req.Tag)
	if err != nil {
		return none, err
	}
	known, err := g.askKnown(ctx, s.Name)
	if err != nil {
		return none, unconfirmed(err, "max_id was not moved: send it again")
	}
	seen, silent := max(known.End, known.Floor, g.alloc.Seen(s.Name)), []string{s.Last.Node}
	err = LastRefills(ctx, g.cfg.JS, s.Name, func(r events.Refill) {
		seen, silent = max(seen, r.Last+1), append(silent, r.Node)
	})
	if err != nil {
		return none, fmt.Errorf("the last refill event of %s cannot be read, and max_id was not moved: %w", s.Name, err)
	}
	heard := map[string]bool{"": true, g.cfg.Node: true}
	for _, b := range g.group.present(time.Now()) {
		heard[b.Node] = true
	}
	silent = slices.DeleteFunc(silent, func(node string) bool { return heard[node] || slices.Contains(req.Without, node) })
	if len(silent) > 0 && req.MaxID == nil {
		return none, conflict("generator %s claimed IDs of %s and is not heard, so it may know of more: start it, or give --max-id above all IDs "+
			"that your services got, or --without %s if its data folder is lost", silent[0], s.Name, silent[0])
	}
	if req.MaxID != nil {
		seen = max(seen, int64(*req.MaxID))
	}
	for {
		to := bus.ID(max(s.MaxID, s.Floor, seen))
		changed, err := g.tagsUpdate(ctx, admin.TagUpdate{Tag: s.Name, MaxID: &to, Force: true})
		if !errors.Is(err, allocator.ErrConflict) {
			return admin.TagAdvance{TagChange: changed, Was: bus.ID(s.MaxID)}, err
		}
		// A generator reserved a range meanwhile. Of a strict tag that could happen again and again.
		g.hold(s.Name)
		if s, err = g.get(ctx, req.Tag); err != nil {
			return none, err
		}
	}
}

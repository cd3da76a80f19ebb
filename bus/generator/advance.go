package generator

import (
	"context"
	"errors"
	"fmt"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// tagsAdvance moves max_id of a tag above all IDs that are known to be in use. Each source may know
// ranges that the others have forgotten: the store and its ledger, every running generator, and the
// tag's last refill event. An error of any of them moves nothing, because the others might know less.
func (g *Generator) tagsAdvance(ctx context.Context, req tagName) (bus.TagAdvance, error) {
	t, err := g.get(ctx, req.Tag)
	if err != nil {
		return bus.TagAdvance{}, err
	}
	if err := g.hearPeers(ctx); err != nil {
		return bus.TagAdvance{}, err
	}
	// Asked by the record that is in force: it changes nothing at the peers.
	seen, _, err := g.broadcastTag(ctx, t)
	if err != nil {
		return bus.TagAdvance{}, unconfirmed(err, "max_id was not moved: send it again")
	}
	err = LastRefills(ctx, g.cfg.JS, t.Name, func(_ string, end int64) { seen = max(seen, end) })
	if err != nil {
		return bus.TagAdvance{}, fmt.Errorf("the last refill event of %s cannot be read, and max_id was not moved: %w", t.Name, err)
	}
	for {
		to := bus.ID(max(t.MaxID, t.Floor, seen))
		changed, err := g.tagsUpdate(ctx, bus.TagUpdate{Tag: t.Name, MaxID: &to})
		if !errors.Is(err, allocator.ErrConflict) {
			return bus.TagAdvance{TagChange: changed, Was: bus.ID(t.MaxID)}, err
		}
		// A generator reserved a range meanwhile. Of a strict tag that could happen again and again.
		g.hold(t.Name) // tagsUpdate lets the claims go on
		if t, err = g.get(ctx, req.Tag); err != nil {
			return bus.TagAdvance{}, err
		}
	}
}

package generator

import (
	"context"
	"errors"
	"fmt"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// tagsAdvance moves max_id of a tag above all IDs that are known to be in use. Each source may know
// ranges that the others have forgotten: the store and its ledger, every running generator, and the
// tag's last refill event. An error of any of them moves nothing, because the others might know less.
func (g *Generator) tagsAdvance(ctx context.Context, req tagName) (admin.TagAdvance, error) {
	t, err := g.get(ctx, req.Tag)
	if err != nil {
		return admin.TagAdvance{}, err
	}
	if err := g.hearPeers(ctx); err != nil {
		return admin.TagAdvance{}, err
	}
	// Asked by the record that is in force: it changes nothing at the peers.
	seen, _, err := g.broadcastTag(ctx, t)
	if err != nil {
		return admin.TagAdvance{}, unconfirmed(err, "max_id was not moved: send it again")
	}
	err = LastRefills(ctx, g.cfg.JS, t.Name, func(_ string, end int64) { seen = max(seen, end) })
	if err != nil {
		return admin.TagAdvance{}, fmt.Errorf("the last refill event of %s cannot be read, and max_id was not moved: %w", t.Name, err)
	}
	for {
		from, err := g.unclaimed(ctx, t)
		if err != nil {
			return admin.TagAdvance{}, err
		}
		to := bus.ID(max(t.MaxID, t.Floor, seen))
		changed, err := g.tagsUpdate(ctx, admin.TagUpdate{Tag: t.Name, MaxID: &to, Force: true})
		if !errors.Is(err, allocator.ErrConflict) {
			return admin.TagAdvance{TagChange: changed, Was: bus.ID(t.MaxID), ClaimedFrom: bus.ID(from)}, err
		}
		// A generator reserved a range meanwhile. Of a strict tag that could happen again and again.
		g.hold(t.Name) // tagsUpdate lets the claims go on
		if t, err = g.get(ctx, req.Tag); err != nil {
			return admin.TagAdvance{}, err
		}
	}
}

// unclaimed returns the first ID below max_id that the ledger has no claim of; 0: there is none. The record of the tag was read before: so a
// range that is claimed meanwhile does not count.
func (g *Generator) unclaimed(ctx context.Context, t allocator.Tag) (int64, error) {
	if g.cfg.Ledger == nil || t.Order != allocator.Trend { // then the tag's own record is the claim
		return 0, nil
	}
	e, err := g.cfg.Records.Claimed(ctx, t.Name)
	if err != nil {
		return 0, fmt.Errorf("the ledger cannot be read, and max_id was not moved: %w", err)
	}
	if end := max(e.End, 1); end < t.MaxID {
		return end, nil
	}
	return 0, nil
}

package generator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/audit"
)

// advance moves max_id of a tag above all that somebody knows to be in use, whatever its record
// says: the generators that are heard, and its refill events, of which the last need not be the
// highest: after a restore an empty generator claims low ranges. It is for what nobody running
// knows by itself: these raise a record that was set back. A generator that made the last or the
// highest claim, by the record or by the events, and that is not heard may know more: then an
// operator must say so.
func (t *tagAdmin) advance(ctx context.Context, req admin.AdvanceRequest) (admin.TagAdvance, error) {
	none := admin.TagAdvance{}
	s, err := t.stored(ctx, req.Tag)
	if err != nil {
		return none, err
	}
	known, err := t.exchange.askKnown(ctx, s.Name)
	if err != nil {
		return none, unconfirmed(err, "max_id was not moved: send it again")
	}
	var last, highest string // the nodes that claimed the last and the highest range
	var end int64
	err = audit.Refills(ctx, t.cfg.JS, s.Name, func(_, node string, r bus.Range) {
		if last = node; r.Last >= end {
			highest, end = node, r.Last+1
		}
	})
	if err != nil {
		return none, fmt.Errorf("the refill events of %s cannot be read, and max_id was not moved: %w", s.Name, err)
	}
	seen := max(known.End, known.Floor, t.alloc.Seen(s.Name), end)
	if req.MaxID != nil {
		seen = max(seen, int64(*req.MaxID))
	} else if silent := t.group.unheard(append(req.Without, t.cfg.Node), s.Last.Node, last, highest); len(silent) > 0 {
		return none, conflict("generator %s claimed IDs of %s and is not heard, so it may know of more: start it, "+
			"or give --max-id above all IDs that your services got, or --without %s if its data folder is lost",
			strings.Join(silent, ", "), s.Name, strings.Join(silent, ","))
	}
	for {
		to := bus.ID(max(s.MaxID, s.Floor, seen))
		changed, err := t.update(ctx, admin.TagSpec{Tag: s.Name, MaxID: &to, Force: true})
		if !errors.Is(err, allocator.ErrConflict) {
			return admin.TagAdvance{TagRecord: changed, Was: bus.ID(s.MaxID)}, err
		}
		// A generator reserved a range meanwhile. Of a strict tag that could happen again and
		// again.
		t.exchange.hold(s.Name)
		if s, err = t.stored(ctx, req.Tag); err != nil {
			return none, err
		}
	}
}

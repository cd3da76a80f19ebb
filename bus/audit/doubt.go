package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

// mostWitnesses is how many claims of doubtful IDs of one tag are compared with each other: so many below the end of
// all claims, and so many above. Thousands above must not hide what was claimed again below.
const mostWitnesses = 1000

// witness is a claim of doubtful IDs, and where it is written.
type witness struct {
	allocator.Claim
	id    string // of the event; empty: the tag's record
	place string // of the event in the stream, for people
	early bool   // the event was read before the tag's record
}

func (w witness) String() string {
	source := "event " + w.id + ", " + w.place
	if w.id == "" {
		source = "the tag's record"
	}
	return fmt.Sprintf("%s claimed %d to %d at %s (%s)", w.Node, w.First, w.Last, w.Time.Format(time.RFC3339Nano), source)
}

func (w witness) ids() bus.Range { return bus.Range{First: w.First, Last: w.Last} }

// same reports whether both are the same claim: an event that was published twice, or an event and the record.
func (w witness) same(o witness) bool {
	return w.First == o.First && w.Last == o.Last && w.Node == o.Node && (w.id == o.id || w.id == "" || o.id == "")
}

func claimOf(e events.Refill, at time.Time) allocator.Claim {
	return allocator.Claim{First: e.First, Last: e.Last, Node: e.Node, Time: at}
}

// doubt reads the events of a tag again, and names those that contradict each other, or the tag's record, in doubtful
// IDs. So an audit need not remember every event. last is the sequence of the last event that was read before the
// record.
func doubt(ctx context.Context, from Source, c admin.TagClaims, ids []bus.Range, last uint64) ([]Contradiction, error) {
	var below, above []witness // the end of all claims
	if c.Last != nil {
		below = append(below, witness{Claim: *c.Last})
	}
	err := readBodies(ctx, from, refillEvents+c.Tag, isRefill, func(msg jetstream.Msg, event events.Event, e events.Refill) {
		w := witness{Claim: claimOf(e, event.Time), id: event.ID, place: place(msg)}
		if !slices.ContainsFunc(ids, w.ids().Overlaps) {
			return
		}
		about, err := msg.Metadata()
		w.early = err == nil && about.Sequence.Stream <= last
		to := &below
		if w.Last >= int64(c.End) {
			to = &above
		}
		switch i := slices.IndexFunc(*to, w.same); {
		case i < 0 && len(*to) < mostWitnesses:
			*to = append(*to, w)
		case i < 0 && to == &above && w.Last > above[len(above)-1].Last: // the highest is always named
			above[len(above)-1] = w
		case i >= 0 && (*to)[i].id == "": // the record is of this event; another event of the same range is another claim
			(*to)[i] = w
		}
	})
	if err != nil {
		return nil, err
	}
	return compare(c, append(below, above...)), nil
}

// compare names the claims that contradict each other, or the tag's record.
func compare(c admin.TagClaims, all []witness) (found []Contradiction) {
	var above []witness // the end of all claims
	for i, w := range all {
		if c.Problem == "" && w.early && w.Last >= int64(c.End) {
			above = append(above, w)
		}
		for _, o := range all[:i] {
			if len(found) == mostContradictions || !w.ids().Overlaps(o.ids()) || w.same(o) {
				continue
			}
			found = append(found, Contradiction{Kind: Overlap, Tag: c.Tag, First: bus.ID(max(w.First, o.First)), Last: bus.ID(min(w.Last, o.Last)),
				Message: fmt.Sprintf("%v, and %v", o, w)})
		}
	}
	if len(above) > 0 {
		found = slices.Insert(found, 0, unclaimed(c, above))
	}
	return found[:min(len(found), mostContradictions)]
}

// unclaimed is the contradiction that claims lie above the end of all claims. A record that was put back contradicts
// all events since: the highest is named.
func unclaimed(c admin.TagClaims, above []witness) Contradiction {
	byLast := func(x, y witness) int { return cmp.Compare(x.Last, y.Last) }
	lowest, highest := slices.MinFunc(above, byLast), slices.MaxFunc(above, byLast)
	others := ""
	if len(above) > 1 {
		others = fmt.Sprintf(", and at least %d other events report claims up there", len(above)-1)
	}
	record := fmt.Sprintf("by its record all claims end below %d: the record was put back, or an event is forged", c.End)
	if c.End == 0 {
		record = "the tag has no record: it was lost, or an event is forged"
	}
	return Contradiction{Kind: Unclaimed, Tag: c.Tag, First: bus.ID(max(lowest.First, int64(c.End))), Last: bus.ID(highest.Last),
		Message: fmt.Sprintf("%v%s, but %s", highest, others, record)}
}

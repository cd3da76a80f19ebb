package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/idspace"
)

// mostSilent is how many generators an error names.
const mostSilent = 20

// lossAdmin compares the records with what generators and events know, for operators who lost some.
// Its methods are safe for concurrent use. It has no lock, because it remembers nothing.
type lossAdmin struct {
	*base
	exchange *exchange
	workers  *workerAdmin
}

// known says how far this generator knows tags to be in use, whatever the store says. A page has as
// many names as fit.
func (l *lossAdmin) known(_ context.Context, req admin.KnownRequest) (admin.KnownPage, error) {
	page := admin.KnownPage{Node: l.cfg.Node, Tags: []admin.KnownTag{}}
	// A generator that waits for JetStream has not joined yet, and its data folder says which one.
	page.Installation = cmp.Or(l.membership.installation(), l.cfg.Installation)
	var names []string
	for tag, end := range l.cfg.Index.Ends() {
		if end > 1 && tag > req.After {
			names = append(names, tag)
		}
	}
	slices.Sort(names)
	for _, tag := range names {
		k := l.alloc.Known(tag)
		t := admin.KnownTag{Tag: tag, End: bus.ID(k.End), Opaque: string(k.Order.Domain())}
		if k.Order == allocator.Strict || l.alloc.Order(tag) == allocator.Strict {
			t.Order = idspace.OrderStrict
		}
		page.Tags = append(page.Tags, t)
	}
	if n := fit(l.cfg.Conn, page.Tags, len(page.Tags)); n < len(page.Tags) {
		page.Tags = page.Tags[:n]
		page.Next = page.Tags[n-1].Tag
	}
	return page, nil
}

// missing names the tags that generators or events know, and of which there is no record, not even
// that of a deletion.
func (l *lossAdmin) missing(ctx context.Context, _ struct{}) (missing admin.MissingTags, err error) {
	missing.Tags, _, err = l.find(ctx)
	if n := fit(l.cfg.Conn, missing.Tags, len(missing.Tags)); n < len(missing.Tags) {
		missing.Tags, missing.More = missing.Tags[:n], len(missing.Tags)-n
	}
	return missing, err
}

// find returns all missing tags, and what is known.
func (l *lossAdmin) find(ctx context.Context) (missing []admin.KnownTag, k audit.Knowledge, err error) {
	missing = []admin.KnownTag{}
	if err := l.heartbeats.hearPeers(ctx); err != nil {
		return missing, k, err
	}
	k, err = audit.Gather(ctx, admin.NewClient(l.cfg.Conn), l.cfg.JS, l.membership.installation())
	if err != nil {
		return missing, k, err
	}
	tags, err := l.alloc.List(ctx, allocator.Query{Limit: math.MaxInt})
	if err != nil {
		return missing, k, err
	}
	unlisted := maps.Clone(k.Ends)
	maps.DeleteFunc(unlisted, func(tag string, _ int64) bool { return k.Deleted[tag] })
	for _, t := range tags {
		delete(unlisted, t.Name)
	}
	for _, tag := range slices.Sorted(maps.Keys(unlisted)) {
		unknown, mark, err := l.unknown(ctx, tag)
		if err != nil {
			return missing, k, err
		}
		if unknown {
			t, ok := k.Records[tag]
			if ok && t.Order == "" && t.Opaque == "" {
				t.Order = idspace.OrderTrend
			}
			if t.Opaque == "" {
				t.Order = cmp.Or(t.Order, mark.Kind)
			}
			missing = append(missing, admin.KnownTag{
				Tag: tag, End: bus.ID(max(k.Ends[tag], mark.Mark)), Order: t.Order, Opaque: t.Opaque})
		}
	}
	return missing, k, nil
}

// unknown reports whether a tag has neither a record nor a row. Then the database may have its
// mark.
func (l *lossAdmin) unknown(ctx context.Context, tag string) (unknown bool, mark allocator.Row, err error) {
	s, err := l.alloc.Load(ctx, tag)
	switch {
	case errors.Is(err, allocator.ErrDamaged), errors.Is(err, allocator.ErrNewer):
		return false, mark, nil
	case err != nil || s.MaxID != 0 || l.cfg.Numbers == nil:
		return err == nil && s.MaxID == 0, mark, err
	}
	mark, err = l.cfg.Numbers.Peek(ctx, tag)
	return mark.MaxID == 0, mark, err
}

// end ends a loss of all tags: from then on a name without a record is new. It is a conflict while
// a tag is known that has no record, and while a generator is not heard that may know others.
func (l *lossAdmin) end(ctx context.Context, req admin.EndLossRequest) (admin.EndLossReply, error) {
	none := admin.EndLossReply{}
	if lost := l.cfg.Records.Err(); !errors.Is(lost, allocator.ErrTagsLost) {
		return none, lost
	}
	missing, know, err := l.find(ctx)
	if err != nil {
		return none, err
	}
	if n := len(missing); n > 0 {
		return none, conflict("the loss of all tags is not over: tags that are known and have no record: %d, "+
			"for example %s. `leaf tag advance --all` says how to add them", n, missing[0].Tag)
	}
	nodes, err := l.unheard(ctx, know.Claimers, req.Without)
	if err != nil {
		return none, err
	}
	if len(nodes) > 0 {
		shown := nodes[:min(len(nodes), mostSilent)]
		return none, conflict("the loss of all tags is not over: generators that are not heard may know tags "+
			"that no other does (%d): %s. Start them with their data folders. If a folder is lost, add the tags "+
			"that its generator may have had, with --max-id above all IDs that your services got, and then: "+
			"leaf tag advance --all --without %s", len(nodes), strings.Join(shown, ", "), strings.Join(shown, ","))
	}
	return admin.EndLossReply{Ended: true}, l.cfg.EndLoss(ctx)
}

// unheard returns the generators that are not heard, of these, of those that have a worker's
// record, and of those that fell silent. Only an operator knows which of them will not come back.
func (l *lossAdmin) unheard(ctx context.Context, some map[string]bool, without []string) ([]string, error) {
	workers, err := l.workers.entries(ctx)
	if err != nil {
		return nil, fmt.Errorf("which generators there were is not known: %w", err)
	}
	_, nodes := l.group.members(time.Now())
	nodes = slices.AppendSeq(nodes, maps.Keys(some))
	for _, w := range workers {
		nodes = append(nodes, w.Node)
	}
	return l.group.unheard(append(without, l.cfg.Node), nodes...), nil
}

package generator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
)

// mostSilent is how many generators an error names.
const mostSilent = 20

// tagsEndLoss ends a loss of all tags: from then on a name without a record is new. It is a conflict while a tag is
// known that has no record, and while a generator is not heard that may know others.
func (g *Generator) tagsEndLoss(ctx context.Context, req admin.EndLossRequest) (admin.EndLossReply, error) {
	none := admin.EndLossReply{}
	if lost := g.cfg.Records.Err(); !errors.Is(lost, allocator.ErrTagsLost) {
		return none, lost
	}
	missing, know, err := g.missing(ctx)
	if err != nil {
		return none, err
	}
	if n := len(missing); n > 0 {
		return none, conflict("the loss of all tags is not over: tags that are known and have no record: %d, for example %s. "+
			"`leaf tag advance --all` says how to add them", n, missing[0].Tag)
	}
	nodes, err := g.unheard(ctx, know.claimers, req.Without)
	if err != nil {
		return none, err
	}
	if len(nodes) > 0 {
		shown := nodes[:min(len(nodes), mostSilent)]
		return none, conflict("the loss of all tags is not over: generators that are not heard may know tags "+
			"that no other does (%d): %s. Start them with their data folders. If a folder is lost, add the tags that its "+
			"generator may have had, with --max-id above all IDs that your services got, and then: "+
			"leaf tag advance --all --without %s", len(nodes), strings.Join(shown, ", "), strings.Join(shown, ","))
	}
	return admin.EndLossReply{Ended: true}, g.cfg.EndLoss(ctx)
}

// unheard returns the generators that are not heard, of these, of those that have a worker's record, and of those that
// fell silent. Only an operator knows which of them will not come back.
func (g *Generator) unheard(ctx context.Context, some map[string]bool, without []string) ([]string, error) {
	workers, err := g.workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("which generators there were is not known: %w", err)
	}
	silent := maps.Clone(some)
	for _, w := range workers {
		silent[w.Node] = true
	}
	here, lost := g.group.members(time.Now())
	for _, node := range lost {
		silent[node] = true
	}
	for _, b := range here {
		delete(silent, b.Node)
	}
	for _, node := range append([]string{g.cfg.Node, ""}, without...) {
		delete(silent, node)
	}
	return slices.Sorted(maps.Keys(silent)), nil
}

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

// tagsEndLoss ends a loss of all tags: from then on a name without a record is new. It is a conflict while a tag is known that has no
// record, and while a generator is not heard that may know more: by the events, by the workers' records, or because it
// fell silent. Only an operator knows that such a generator will not come back.
func (g *Generator) tagsEndLoss(ctx context.Context, req admin.EndLossRequest) (admin.EndLossReply, error) {
	if lost := g.cfg.Records.Err(); !errors.Is(lost, allocator.ErrTagsLost) {
		return admin.EndLossReply{}, lost
	}
	missing, know, err := g.missing(ctx)
	if err != nil {
		return admin.EndLossReply{}, err
	}
	if n := len(missing); n > 0 {
		return admin.EndLossReply{}, conflict("the loss of all tags is not over: tags that are known and have no record: %d, for example %s. "+
			"`leaf tag advance --all` says how to add them", n, missing[0].Tag)
	}
	workers, err := g.workers(ctx)
	if err != nil {
		return admin.EndLossReply{}, fmt.Errorf("which generators there were is not known: %w", err)
	}
	silent := know.claimers
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
	for _, node := range append(req.Without, g.cfg.Node, "") {
		delete(silent, node)
	}
	if nodes := slices.Sorted(maps.Keys(silent)); len(nodes) > 0 {
		shown := nodes[:min(len(nodes), mostSilent)]
		return admin.EndLossReply{}, conflict("the loss of all tags is not over: generators that are not heard may know tags that no other does (%d): %s. "+
			"Start them with their data folders. If a folder is lost, add the tags that its generator may have had, with --max-id above all IDs "+
			"that your services got, and then: leaf tag advance --all --without %s", len(nodes), strings.Join(shown, ", "), strings.Join(shown, ","))
	}
	return admin.EndLossReply{Ended: true}, g.cfg.EndLoss(ctx)
}

package generator

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

// Knowledge is what generators and events know of tags, whatever the records say.
type Knowledge struct {
	Nodes   []string                   // the generators that were heard
	Ends    map[string]int64           // of all ranges of a tag
	changes map[string]admin.TagRecord // by the last event of each tag that was not deleted, or its kind as generators know it
	deleted map[string]bool
	// claimers are the nodes that claimed last, by the last refill event of each tag.
	claimers map[string]bool
}

// Gather asks all generators and reads the events. A generator of another installation is an error, unless the
// installation is "".
func Gather(ctx context.Context, c *admin.Client, js jetstream.JetStream, installation string) (Knowledge, error) {
	k := Knowledge{Ends: make(map[string]int64), changes: make(map[string]admin.TagRecord), deleted: make(map[string]bool),
		claimers: make(map[string]bool)}
	note := func(tag string, end int64) {
		if allocator.CheckTag(tag) == nil {
			k.Ends[tag] = max(k.Ends[tag], end)
		}
	}
	for after, more := "", true; more; {
		pages, err := c.Known(ctx, admin.KnownRequest{After: after})
		if err != nil {
			return k, fmt.Errorf("what the generators know cannot be read: %w", err)
		}
		after, more, k.Nodes = "", false, nil
		for _, page := range pages {
			if installation != "" && page.Installation != "" && page.Installation != installation {
				return k, fmt.Errorf("the generator %s on this NATS is of installation %s, and the backup is of installation %s: "+
					"name the right --server and account. If it was created after a loss of all data folders, see docs/cluster.md",
					page.Node, page.Installation, installation)
			}
			k.Nodes = append(k.Nodes, page.Node)
			for _, t := range page.Tags {
				note(t.Tag, int64(t.End))
				if t.Order != "" || t.Opaque != "" {
					k.changes[t.Tag] = admin.TagRecord{Order: t.Order, Opaque: t.Opaque}
				}
			}
			if page.Next != "" && (!more || page.Next < after) {
				after, more = page.Next, true
			}
		}
	}
	err := LastRefills(ctx, js, "", func(r events.Refill) {
		note(r.Tag, r.Last+1)
		k.claimers[r.Node] = true
	})
	if err == nil {
		err = LastChanges(ctx, js, "", func(t admin.TagRecord, deleted bool) {
			note(t.Tag, int64(t.MaxID))
			k.changes[t.Tag], k.deleted[t.Tag] = t, deleted // they come in their order
		})
	}
	if err != nil {
		return k, fmt.Errorf("what the events know cannot be read (if the stream is lost for good, remove it: nats stream rm %s): %w", events.Stream, err)
	}
	return k, nil
}

package generator

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/wire"
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

func (k *Knowledge) note(tag string, end int64) {
	if allocator.CheckTag(tag) == nil {
		k.Ends[tag] = max(k.Ends[tag], end)
	}
}

// Gather asks all generators and reads the events. A generator of another installation is an error, unless the
// installation is "".
func Gather(ctx context.Context, c *admin.Client, js jetstream.JetStream, installation string) (Knowledge, error) {
	k := Knowledge{Ends: make(map[string]int64), changes: make(map[string]admin.TagRecord), deleted: make(map[string]bool),
		claimers: make(map[string]bool)}
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
				k.note(t.Tag, int64(t.End))
				if t.Order != "" || t.Opaque != "" {
					k.changes[t.Tag] = admin.TagRecord{Order: t.Order, Opaque: t.Opaque}
				}
			}
			if page.Next != "" && (!more || page.Next < after) {
				after, more = page.Next, true
			}
		}
	}
	err := lastEvents(ctx, js, "", func(r events.Refill) {
		k.note(r.Tag, r.Last+1)
		k.claimers[r.Node] = true
	}, func(t admin.TagRecord, deleted bool) {
		k.note(t.Tag, int64(t.MaxID))
		k.changes[t.Tag], k.deleted[t.Tag] = t, deleted // they come in their order
	})
	if err != nil {
		return k, fmt.Errorf("what the events know cannot be read (if the stream is lost for good, remove it: nats stream rm %s): %w", events.Stream, err)
	}
	return k, nil
}

// changeSubject is that of the events of tags that were created, changed or deleted; then the tag.
const changeSubject = wire.SubjectEvents + ".info.tag.*."

// lastEvents calls refilled with the last refill event of each tag, and changed with the record in the last event of
// each that was created, changed or deleted. With a tag it reads only the events of that one. Events are a hint: they may
// be late or lost.
func lastEvents(
	ctx context.Context, js jetstream.JetStream, tag string, refilled func(events.Refill), changed func(t admin.TagRecord, deleted bool),
) error {
	for _, subject := range []string{wire.RefillSubject, changeSubject} {
		if tag == "" {
			err := audit.Read(ctx, js, subject+">", jetstream.DeliverLastPerSubjectPolicy, func(msg jetstream.Msg, _ uint64) {
				noteEvent(msg.Subject(), msg.Headers(), msg.Data(), refilled, changed)
			})
			if err != nil {
				return err
			}
			continue
		}
		msg, err := audit.Last(ctx, js, subject+tag) // without a consumer: an operator may ask for thousands of tags
		if err != nil {
			return err
		}
		if msg != nil {
			noteEvent(msg.Subject, msg.Header, msg.Data, refilled, changed)
		}
	}
	return nil
}

// Refills calls f with every refill event of a tag, in their order; with an empty tag, of all tags.
func Refills(ctx context.Context, js jetstream.JetStream, tag string, f func(events.Refill)) error {
	if tag == "" {
		tag = ">"
	}
	return audit.Read(ctx, js, wire.RefillSubject+tag, jetstream.DeliverAllPolicy, func(msg jetstream.Msg, _ uint64) {
		noteEvent(msg.Subject(), msg.Headers(), msg.Data(), f, nil)
	})
}

// noteEvent calls refilled or changed with an event of a tag. It skips what is none.
func noteEvent(
	subject string, header nats.Header, data []byte, refilled func(events.Refill), changed func(t admin.TagRecord, deleted bool),
) {
	event, err := events.Parse(subject, header, data)
	if err != nil {
		return
	}
	switch body := event.Body.(type) {
	case events.Refill:
		if body.Last > 0 && body.Tag == event.Key {
			refilled(body)
		}
	case events.Tag:
		if body.Tag == event.Key {
			changed(body.TagRecord, strings.HasPrefix(subject, wire.SubjectEvents+".info.tag.deleted."))
		}
	}
}

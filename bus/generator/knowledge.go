package generator

import (
	"cmp"
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
	Nodes []string         // the generators that were heard
	Ends  map[string]int64 // of all ranges of a tag
	// changes have the record in the last event of each tag, or its kind as generators know it.
	changes map[string]admin.TagRecord
	deleted map[string]bool // by the last event
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
	k := Knowledge{Ends: make(map[string]int64), changes: make(map[string]admin.TagRecord),
		deleted: make(map[string]bool), claimers: make(map[string]bool)}
	for after, more := "", true; more; {
		pages, err := c.Known(ctx, admin.KnownRequest{After: after})
		if err != nil {
			return k, fmt.Errorf("what the generators know cannot be read: %w", err)
		}
		after, more, k.Nodes = "", false, nil
		for _, page := range pages {
			if installation != "" && page.Installation != "" && page.Installation != installation {
				return k, fmt.Errorf("the generator %s on this NATS is of installation %s, and the backup is of "+
					"installation %s: name the right --server and account. If it was created after a loss of all data "+
					"folders, see docs/cluster.md", page.Node, page.Installation, installation)
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
	err := lastEvents(ctx, js, "", evidence{
		refilled: func(r events.Refill) {
			k.note(r.Tag, r.Last+1)
			k.claimers[r.Node] = true
		},
		changed: func(t admin.TagRecord, deleted bool) {
			k.note(t.Tag, int64(t.MaxID))
			k.changes[t.Tag], k.deleted[t.Tag] = t, deleted // they come in their order
		},
	})
	if err != nil {
		return k, fmt.Errorf("what the events know cannot be read (if the stream is lost for good, remove it: "+
			"nats stream rm %s): %w", events.Stream, err)
	}
	return k, nil
}

// evidence is called with events of tags. Events are a hint: they may be late or lost.
type evidence struct {
	refilled func(events.Refill)
	changed  func(t admin.TagRecord, deleted bool) // the record of a tag that was created, changed or deleted
}

// lastEvents passes the last refill event of each tag on, and the last one of its record. With a tag it reads only the
// events of that one.
func lastEvents(ctx context.Context, js jetstream.JetStream, tag string, to evidence) error {
	for _, subject := range []string{wire.RefillSubject, wire.SubjectEvents + ".info.tag.*."} {
		if tag == "" {
			if err := to.read(ctx, js, subject+">", jetstream.DeliverLastPerSubjectPolicy); err != nil {
				return err
			}
			continue
		}
		msg, err := audit.Last(ctx, js, subject+tag) // without a consumer: an operator may ask for thousands of tags
		if err != nil {
			return err
		}
		if msg != nil {
			to.note(msg.Subject, msg.Header, msg.Data)
		}
	}
	return nil
}

// Refills calls f with every refill event of a tag, in their order; with an empty tag, of all tags.
func Refills(ctx context.Context, js jetstream.JetStream, tag string, f func(events.Refill)) error {
	return evidence{refilled: f}.read(ctx, js, wire.RefillSubject+cmp.Or(tag, ">"), jetstream.DeliverAllPolicy)
}

func (e evidence) read(
	ctx context.Context, js jetstream.JetStream, subject string, policy jetstream.DeliverPolicy,
) error {
	return audit.Read(ctx, js, subject, policy, func(msg jetstream.Msg, _ uint64) {
		e.note(msg.Subject(), msg.Headers(), msg.Data())
	})
}

// note passes an event on. It skips what is none.
func (e evidence) note(subject string, header nats.Header, data []byte) {
	event, err := events.Parse(subject, header, data)
	if err != nil {
		return
	}
	switch body := event.Body.(type) {
	case events.Refill:
		if body.Last > 0 && body.Tag == event.Key {
			e.refilled(body)
		}
	case events.Tag:
		if body.Tag == event.Key {
			e.changed(body.TagRecord, strings.HasPrefix(subject, wire.SubjectEvents+".info.tag.deleted."))
		}
	}
}

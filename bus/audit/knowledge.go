package audit

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/bus/internal/stream"
	"github.com/leafbus/leafbus/internal/wire"
)

// Knowledge is what generators and events know of tags, whatever the records say.
type Knowledge struct {
	Nodes []string         // the generators that were heard
	Ends  map[string]int64 // of all ranges of a tag
	// Records are those in the last event of each tag, or have its kind as generators know it.
	Records map[string]admin.TagRecord
	Deleted map[string]bool // tags, by the last event
	// Claimers are the nodes that claimed last, by the last refill event of each tag.
	Claimers map[string]bool
}

func (k *Knowledge) note(tag string, end int64) {
	if idspace.CheckTag(tag) == nil {
		k.Ends[tag] = max(k.Ends[tag], end)
	}
}

// Gather asks all generators and reads the events. A generator of another installation is an error,
// unless the installation is "".
func Gather(ctx context.Context, c *admin.Client, js jetstream.JetStream, installation string) (Knowledge, error) {
	k := Knowledge{Ends: make(map[string]int64), Records: make(map[string]admin.TagRecord),
		Deleted: make(map[string]bool), Claimers: make(map[string]bool)}
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
					"folders, see docs/operate.md", page.Node, page.Installation, installation)
			}
			k.Nodes = append(k.Nodes, page.Node)
			for _, t := range page.Tags {
				k.note(t.Tag, int64(t.End))
				if t.Order != "" || t.Opaque != "" {
					k.Records[t.Tag] = admin.TagRecord{Order: t.Order, Opaque: t.Opaque}
				}
			}
			if page.Next != "" && (!more || page.Next < after) {
				after, more = page.Next, true
			}
		}
	}
	for _, subject := range tagSubjects {
		read := func(msg jetstream.Msg, _, _ uint64) {
			body, deleted := tagEvent(msg.Subject(), msg.Headers(), msg.Data())
			switch body := body.(type) {
			case events.Refill:
				k.note(body.Tag, body.Last+1)
				k.Claimers[body.Node] = true
			case events.Tag:
				k.note(body.Tag, int64(body.MaxID))
				k.Records[body.Tag], k.Deleted[body.Tag] = body.TagRecord, deleted // they come in their order
			}
		}
		err := stream.Read(ctx, js, events.Stream, subject+">", jetstream.DeliverLastPerSubjectPolicy, read)
		if err != nil {
			return k, fmt.Errorf("what the events know cannot be read (if the stream is lost for good, remove it: "+
				"nats stream rm %s): %w", events.Stream, err)
		}
	}
	return k, nil
}

// tagSubjects come before the tag in the subjects of its refills, and of its creation, changes and
// deletion.
var tagSubjects = []string{wire.RefillSubject, wire.SubjectEvents + ".info.tag.*."}

// tagEvent returns the body of an event of a tag: events.Refill or events.Tag. It is nil for all
// else. Events are a hint: they may be late or lost.
func tagEvent(subject string, header nats.Header, data []byte) (body any, deleted bool) {
	event, err := events.Parse(subject, header, data)
	if err != nil {
		return nil, false
	}
	switch body := event.Body.(type) {
	case events.Refill:
		if body.Last > 0 && body.Tag == event.Key {
			return body, false
		}
	case events.Tag:
		if body.Tag == event.Key {
			return body, strings.HasPrefix(subject, wire.SubjectEvents+".info.tag.deleted.")
		}
	}
	return nil, false
}

// EndInEvents is how far the last events of a tag know it to be in use; 0: they do not know the
// name. It needs no consumer, because an operator may ask for thousands of tags.
func EndInEvents(ctx context.Context, js jetstream.JetStream, tag string) (end int64, err error) {
	for _, subject := range tagSubjects {
		last, err := stream.Last(ctx, js, events.Stream, subject+tag)
		if err != nil {
			return end, err
		}
		if last == nil {
			continue
		}
		switch body, _ := tagEvent(last.Subject, last.Header, last.Data); body := body.(type) {
		case events.Refill:
			end = max(end, body.Last+1)
		case events.Tag:
			end = max(end, int64(body.MaxID))
		}
	}
	return end, nil
}

// Refills calls f with the range of every refill event of a tag, in their order; with an empty tag,
// of all tags.
func Refills(ctx context.Context, js jetstream.JetStream, tag string, f func(tag, node string, r bus.Range)) error {
	return readClaims(ctx, js, tag, func(tag string, c claim, problem error, _ uint64) {
		if problem == nil { // an event that cannot be read shows nothing
			f(tag, c.node, c.Range)
		}
	})
}

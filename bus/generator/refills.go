package generator

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// LastRefills calls f with the last refill event of each tag in the event stream. With a tag it reads only the event of
// that one. Events are a hint: they may be late or lost.
func LastRefills(ctx context.Context, js jetstream.JetStream, tag string, f func(events.Refill)) error {
	if tag != "" { // without a consumer: an operator may ask for thousands of tags
		msg, err := audit.Last(ctx, js, wire.RefillSubject+tag)
		if err == nil && msg != nil {
			noteRefill(msg.Subject, msg.Data, f)
		}
		return err
	}
	return audit.Read(ctx, js, wire.RefillSubject+">", jetstream.DeliverLastPerSubjectPolicy, func(msg jetstream.Msg, _ uint64) {
		noteRefill(msg.Subject(), msg.Data(), f)
	})
}

// Refills calls f with every refill event of a tag, in their order; with an empty tag, of all tags.
func Refills(ctx context.Context, js jetstream.JetStream, tag string, f func(events.Refill)) error {
	if tag == "" {
		tag = ">"
	}
	return audit.Read(ctx, js, wire.RefillSubject+tag, jetstream.DeliverAllPolicy, func(msg jetstream.Msg, _ uint64) {
		noteRefill(msg.Subject(), msg.Data(), f)
	})
}

// LastChanges calls f with the record in the last event of each tag that was created, changed or deleted. With a tag
// it reads only the event of that one. They are a hint, as in [LastRefills].
func LastChanges(ctx context.Context, js jetstream.JetStream, tag string, f func(t admin.TagRecord, deleted bool)) error {
	note := func(subject string, header nats.Header, data []byte) {
		event, err := events.Parse(subject, header, data)
		if body, ok := event.Body.(events.Tag); err == nil && ok && body.Tag == event.Key {
			f(body.TagRecord, strings.HasPrefix(subject, wire.SubjectEvents+".info.tag.deleted."))
		}
	}
	if tag != "" {
		msg, err := audit.Last(ctx, js, wire.SubjectEvents+".info.tag.*."+tag)
		if err == nil && msg != nil {
			note(msg.Subject, msg.Header, msg.Data)
		}
		return err
	}
	return audit.Read(ctx, js, wire.SubjectEvents+".info.tag.>", jetstream.DeliverLastPerSubjectPolicy, func(msg jetstream.Msg, _ uint64) {
		note(msg.Subject(), msg.Headers(), msg.Data())
	})
}

// noteRefill calls f with a refill event. It skips what is none.
func noteRefill(subject string, data []byte, f func(events.Refill)) {
	var body events.Refill
	if err := json.Unmarshal(data, &body); err != nil || body.Last <= 0 || subject != wire.RefillSubject+body.Tag {
		return
	}
	f(body)
}

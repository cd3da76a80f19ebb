package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/bus/internal/stream"
	"github.com/leafbus/leafbus/internal/wire"
)

// mostProblem is how many bytes the reason may have why a record cannot be read: it quotes the
// record.
const mostProblem = 500

// AuditSource returns where an audit reads an installation: events and tags in JetStream, workers
// from the generators.
func AuditSource(c *admin.Client, js jetstream.JetStream) audit.Source {
	return audit.Source{
		JS:      js,
		Records: func(ctx context.Context, tag string, f func(audit.Record)) error { return readTags(ctx, js, tag, f) },
		Workers: c.Workers, States: c.States, Reveal: c.RevealIDs,
	}
}

// readTags calls f with the record of a tag, or with those of all tags if tag is "". It reads by a
// consumer, which only a majority of the servers makes: a leader that is cut off may answer reads
// for 20 s.
func readTags(ctx context.Context, js jetstream.JetStream, tag string, f func(audit.Record)) error {
	b, err := find(ctx, Config{JS: js}, wire.BucketTags)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("bucket %s is not found, so this NATS account has no installation: name the right --server "+
			"and account", wire.BucketTags)
	}
	if err != nil {
		return err
	}
	subject := subjectOf(wire.BucketTags)
	return stream.Read(ctx, js, streamOf(wire.BucketTags), subject+cmp.Or(tag, ">"), jetstream.DeliverLastPerSubjectPolicy,
		func(msg jetstream.Msg, revision, _ uint64) {
			is := Record{Key: strings.TrimPrefix(msg.Subject(), subject), Value: msg.Data(), revision: revision}
			if idspace.CheckTag(is.Key) != nil {
				return // nothing of it can be claimed
			}
			s, err := b.stored(ctx, is)
			r := audit.Record{Tag: is.Key}
			switch {
			case err != nil:
				r.Problem = fmt.Sprintf("%.*s", mostProblem, err)
			case s.Revision == 0: // it was written for an earlier bucket
				return
			default:
				r.Order, r.Opaque = s.Order.String(), string(s.Order.Domain())
				r.End, r.Deleted = bus.ID(s.MaxID), s.Deleted
				if s.Last != (allocator.Claim{}) {
					r.Last = &s.Last
				}
			}
			f(r)
		})
}

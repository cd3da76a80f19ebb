package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/chaos/judge"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// deleteRecord puts the mark of a deletion in the place of a tag's record, as nats kv del does. Nothing else can be
// deleted in the bucket.
func (s *strike) deleteRecord(tag string) {
	s.persist("deleting the record of "+tag, func(ctx context.Context) error {
		kv, err := s.js.KeyValue(ctx, wire.BucketTags)
		if err == nil {
			err = kv.Delete(ctx, tag)
		}
		return err
	})
	s.note("the record of %s deleted", tag)
}

// damage puts bytes that nobody can read in the place of a record, and returns the value that it had at that moment.
func (s *strike) damage(tag string) (value []byte) {
	s.persist("damaging the record of "+tag, func(ctx context.Context) error {
		kv, err := s.js.KeyValue(ctx, wire.BucketTags)
		if err != nil {
			return err
		}
		e, err := kv.Get(ctx, tag)
		if err != nil {
			return err
		}
		value = e.Value()
		_, err = kv.Update(ctx, tag, []byte("damaged"), e.Revision())
		return err
	})
	s.note("the record of %s damaged", tag)
	return value
}

// highest is the largest ID of a tag that came.
func (w *world) highest(tag string) int64 {
	ids := w.judge.Taken(tag)
	if len(ids) == 0 {
		return 0
	}
	return ids[len(ids)-1].Last
}

// above is an ID above all that a tag has handed out, as an operator finds it in the tables of his services. The IDs
// of an opaque tag do not show it: its record does.
func (w *world) above(tag string) int64 {
	last := w.highest(tag)
	if tag == coupon {
		last = w.end(tag)
	}
	return last + 1_000_000
}

// inJetStream are the tags that JetStream keeps, and an ID above all of each.
func (s *strike) inJetStream() map[string]int64 {
	above := map[string]int64{invoice: s.above(invoice), coupon: s.above(coupon)}
	if s.db == nil {
		above[order], above[stock] = s.above(order), s.above(stock)
	}
	return above
}

// createAll makes all tags that were lost, each above these IDs.
func (s *strike) createAll(above map[string]int64) {
	for _, tag := range permanent {
		if above[tag] > 0 {
			s.createAgain(tag, above[tag])
		}
	}
}

// loseTags loses the records of all tags, creates those that only JetStream had again above all their IDs, and ends the
// loss, as docs/operate.md says.
func (s *strike) loseTags(lose func()) {
	above := s.inJetStream()
	lose()
	s.createAll(above)
	s.endLoss()
}

// endLoss does what leaf tag advance --all says until it succeeds. Tags that were deleted, and that nobody remembers
// to be, are made and deleted again. Generators that left for good are named.
func (s *strike) endLoss() {
	var r kit.Result
	without := regexp.MustCompile(`--without (\S+)`)
	args := []string{"tag", "advance", "--all", "--json"}
	if !s.await(2*time.Minute, time.Second, func() bool {
		if r = s.operator(args...); r.Status == 0 {
			return true
		}
		var done struct{ Missing []admin.KnownTag }
		_ = json.Unmarshal([]byte(r.Stdout), &done) // nothing was printed
		for _, t := range done.Missing {
			kind := "--order=" + cmp.Or(t.Order, idspace.OrderTrend)
			if t.Opaque != "" || t.Order == opaque {
				kind = "--opaque=53" // that of all opaque tags here
			}
			s.operator("tag", "add", t.Tag, kind, "--max-id", fmt.Sprint(int64(t.End)+1_000_000))
			if !slices.Contains(permanent, t.Tag) {
				s.operator("tag", "rm", t.Tag, "--yes")
			}
		}
		if gone := without.FindStringSubmatch(r.Stderr); gone != nil && s.gone(strings.Split(gone[1], ",")) {
			args = append(args, "--without", gone[1])
		}
		return false
	}) {
		s.violated("operator", "", "a loss of all tags cannot be ended: "+r.Stderr)
	}
}

// gone reports whether none of these generators will come back.
func (s *strike) gone(nodes []string) bool {
	return !slices.ContainsFunc(s.machines, func(m *machine) bool { return slices.Contains(nodes, m.node()) })
}

// createAgain makes a tag that was lost, as an operator does by the documentation. A generator may have been faster.
func (s *strike) createAgain(tag string, above int64) {
	kind := map[string]string{
		invoice: "--order=strict", coupon: "--opaque=53", order: "--order=trend", stock: "--order=trend",
	}[tag]
	var r kit.Result
	if !s.await(time.Minute, time.Second, func() bool {
		r = s.operator("tag", "add", tag, kind, "--max-id", fmt.Sprint(above))
		if r.Status != 0 && strings.Contains(r.Stderr, "exists") {
			r = s.operator("tag", "set", tag, "--max-id", fmt.Sprint(above))
		}
		return r.Status == 0 || strings.Contains(r.Stderr, "only moves forward") // it is above already
	}) {
		s.violated("operator", tag, "a lost tag cannot be created above all its IDs: "+r.Stderr)
	}
}

// excuseForgotten declares what the audit then says, rightly: events report claims of tags that were deleted, and their
// records are lost; or of a worker that its next holder got from a registry which did not know the former one.
func (w *world) excuseForgotten(stream string) {
	switch stream {
	case streamTags:
		for _, tag := range w.judge.Tags() {
			if tag != callers.Snowflakes && !slices.Contains(permanent, tag) {
				for _, check := range []string{"audit unclaimed", "audit taken_unclaimed"} { // the latter where it has no events
					w.judge.Excuse(judge.Excuse{Check: check, Tag: tag, From: time.Now(), Why: stream + " forgot the tag"})
				}
			}
		}
	case streamWorkers:
		w.judge.Excuse(judge.Excuse{
			Check: "audit two_holders", Tag: callers.Snowflakes, From: time.Now(), Why: "the registry forgot a worker",
		})
	}
}

// excuseUnknown declares that callers may get unknown_tag for these tags, until end: their records or rows are about to
// be lost, and at the end they are there again.
func (s *strike) excuseUnknown(tags ...string) (end func()) {
	var over []func()
	for _, tag := range tags {
		over = append(over, s.judge.Excuse(judge.Excuse{
			Check: "reason " + string(bus.UnknownTag), Tag: tag, From: time.Now(), Why: s.name,
		}))
	}
	return func() {
		s.pause(2 * deadline) // requests that came before may be under way
		for _, f := range over {
			f()
		}
	}
}

// purgeEvents deletes all events of claims. After a restore two claims of the same IDs stay in the audit until then.
func (s *strike) purgeEvents() {
	s.persist("purge of the events", func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, events.Stream)
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject("leaf.events.info.segment.refill.>"))
		}
		return err
	})
	s.note("events purged")
}

// wipe deletes all streams but some, and writes the record of the installation again, as docs/operate.md says.
func (s *strike) wipe(but ...string) {
	record := s.entry(wire.BucketInstallation, "installation").Value()
	s.removeStreams(slices.DeleteFunc(s.streams(), func(name string) bool { return slices.Contains(but, name) })...)
	s.last(5*time.Second, 15*time.Second)
	s.makeBucket(wire.BucketInstallation)
	s.put(wire.BucketInstallation, "installation", record)
}

// makeBucket makes an empty bucket, as nats kv add does.
func (s *strike) makeBucket(name string) {
	s.persist("making the bucket "+name, func(ctx context.Context) error {
		_, err := s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, Replicas: 3})
		return err
	})
}

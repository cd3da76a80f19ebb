package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/chaos/judge"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// Parts that two faults must not harm at a time.
const (
	harmsJetStream = "quorum" // its streams, and enough servers to lead them
	harmsDatabase  = "database"
	harmsRules     = "operator" // limits, quotas and pauses of tags
	harmsFolders   = "folders"
)

// Streams of JetStream.
const (
	streamTags         = "KV_" + bus.BucketTags
	streamLedger       = "KV_" + bus.BucketLedger
	streamWorkers      = "KV_" + bus.BucketWorkers
	streamKeys         = "KV_" + bus.BucketKeys
	streamInstallation = "KV_" + bus.BucketInstallation
)

// recordFaults are about what JetStream and the database keep.
var recordFaults = []*fault{
	{
		name: "ledger-removed", about: "the bucket LEAF_LEDGER is deleted", weight: 1, store: "mysql",
		harms: []string{harmsJetStream, harmsDatabase, harmsRules},
		strike: func(s *strike) {
			s.removeStreams(streamLedger)
			s.last(3*time.Second, 10*time.Second)
		},
	},
	{
		name: "ledger-rolled-back", about: "an older copy of the bucket LEAF_LEDGER is put back", weight: 1, store: "mysql",
		harms: []string{harmsJetStream, harmsDatabase, harmsRules},
		strike: func(s *strike) {
			older := s.backUp(streamLedger)
			s.last(3*time.Second, 15*time.Second)
			s.restore(older)
			s.last(3*time.Second, 10*time.Second)
		},
	},
	{
		name: "ledger-record-removed", about: "a record of the bucket LEAF_LEDGER is deleted, and written by the operator",
		weight: 1, store: "mysql", harms: []string{harmsJetStream, harmsDatabase, harmsRules},
		strike: func(s *strike) {
			tag := []string{order, stock}[s.IntN(2)]
			s.removeKey(bus.BucketLedger, "tag."+tag)
			s.last(2*time.Second, 10*time.Second)
			s.put(bus.BucketLedger, "tag."+tag, fmt.Appendf(nil, `{"end":"%d"}`, s.above(tag)))
		},
	},
	{
		name: "workers-removed", about: "the bucket LEAF_WORKERS is deleted", weight: 1, store: "jetstream", alone: true,
		strike: func(s *strike) {
			s.removeStreams(streamWorkers)
			s.last(5*time.Second, 10*time.Second)
		},
	},
	{
		name: "workers-rolled-back", about: "an older copy of the bucket LEAF_WORKERS is put back", weight: 1,
		store: "jetstream", alone: true,
		strike: func(s *strike) {
			older := s.backUp(streamWorkers)
			m := s.machine()
			m.kill() // its record has another incarnation afterwards
			m.start()
			s.last(5*time.Second, 10*time.Second)
			s.restore(older)
			s.last(5*time.Second, 10*time.Second)
		},
	},
	{
		name: "keys-removed", about: "the bucket LEAF_KEYS is deleted, and restored", weight: 1, alone: true,
		strike: func(s *strike) {
			keys := s.backUp(streamKeys)
			s.removeStreams(streamKeys)
			if s.IntN(2) == 0 {
				m := s.machine() // it has no key in memory then
				m.kill()
				m.start()
			}
			s.last(2*time.Second, 10*time.Second)
			s.restore(keys)
		},
	},
	{
		name: "events-removed", about: "the stream LEAF_EVENTS is deleted", weight: 1, harms: []string{harmsJetStream},
		strike: func(s *strike) {
			s.excuseHolders()
			s.removeStreams(bus.EventStream)
			s.last(2*time.Second, 10*time.Second)
		},
	},
	{
		name: "events-purged", about: "all events of claims are deleted", weight: 1, harms: []string{harmsJetStream},
		strike: func(s *strike) {
			s.purgeEvents()
			s.last(0, 5*time.Second)
		},
	},
	{
		name: "installation-removed", weight: 1,
		about: "the bucket LEAF is deleted, and the operator writes its record again",
		alone: true,
		strike: func(s *strike) {
			record := s.entry(bus.BucketInstallation, "installation").Value()
			s.removeStreams(streamInstallation)
			if s.IntN(2) == 0 {
				m := s.machine() // it may not make another installation
				m.kill()
				m.start()
			}
			s.last(5*time.Second, 15*time.Second)
			s.makeBucket(bus.BucketInstallation)
			s.put(bus.BucketInstallation, "installation", record)
		},
	},
	{
		name: "record-damaged", weight: 1, harms: []string{harmsJetStream, harmsRules},
		about: "nobody can read a tag's record for a while",
		strike: func(s *strike) {
			bucket, key := bus.BucketTags, []string{invoice, coupon, order, stock}[s.IntN(4)]
			if s.db != nil && (key == order || key == stock) {
				bucket, key = bus.BucketLedger, "tag."+key
			}
			value := s.damage(bucket, key)
			s.last(2*time.Second, 10*time.Second)
			s.put(bucket, key, value) // nobody could claim meanwhile
		},
	},
	{
		name: "record-removed", weight: 1,
		about: "a tag's record is deleted, and the operator creates the tag above all IDs",
		store: "jetstream", alone: true,
		strike: func(s *strike) {
			tag := []string{order, stock, invoice, coupon}[s.IntN(4)]
			above := s.above(tag)
			s.excuseUnknown(tag)
			s.removeKey(bus.BucketTags, tag)
			s.last(0, 5*time.Second)
			s.createAgain(tag, above)
		},
	},
	{
		name: "tags-emptied", weight: 1, alone: true,
		about: "the bucket LEAF_TAGS is deleted, and the operator makes the bucket, and each tag above all IDs",
		strike: func(s *strike) {
			above := s.inJetStream()
			s.excuseUnknown(slices.Collect(maps.Keys(above))...)
			s.removeStreams(streamTags)
			s.last(5*time.Second, 15*time.Second)
			s.makeBucket(bus.BucketTags)
			s.createAll(above)
		},
	},
	{
		name: "tags-removed", alone: true,
		about: "the bucket LEAF_TAGS is deleted, and the operator creates each tag above all IDs",
		strike: func(s *strike) {
			above := s.inJetStream()
			s.excuseUnknown(slices.Collect(maps.Keys(above))...)
			s.removeStreams(streamTags)
			s.last(5*time.Second, 15*time.Second)
			s.createAll(above)
		},
	},
	{
		name: "tags-removed-restart", about: "the same, and a generator is started before the operator comes", alone: true,
		strike: func(s *strike) {
			above := s.inJetStream()
			s.excuseUnknown(slices.Collect(maps.Keys(above))...)
			s.removeStreams(streamTags)
			m := s.machine()
			m.kill()
			m.start()
			s.last(5*time.Second, 15*time.Second)
			s.createAll(above)
		},
	},
	{
		name: "tags-rolled-back", weight: 1,
		about: "an older copy of the bucket LEAF_TAGS is put back while generators run",
		alone: true,
		strike: func(s *strike) {
			s.crowd.remove(coupon) // no excuse can name its IDs
			copied := make(map[string]int64)
			for tag := range s.inJetStream() {
				if tag != coupon {
					copied[tag] = s.end(tag)
				}
			}
			older := s.backUpQuiet(streamTags)
			s.last(3*time.Second, 10*time.Second)
			lost := make(map[string]bus.Range)
			for tag, end := range copied {
				lost[tag] = bus.Range{First: end, Last: s.end(tag) + underWay}
			}
			s.removeStreams(streamTags)
			s.pause(time.Second) // answers that are on their way arrive
			for tag, ids := range lost {
				s.excuseRollback(tag, ids, time.Now())
			}
			s.restore(older)
			s.last(0, 5*time.Second)
			s.advance()
			s.purgeEvents()
			s.crowd.add(coupon, false)
		},
	},
	{
		name: "jetstream-wiped", weight: 1, alone: true,
		about:  "all streams are deleted; the keys of opaque tags are kept, and the operator does the rest by docs/cluster.md",
		strike: func(s *strike) { s.wipe() },
	},
	{
		name:   "database-back-then-jetstream-wiped",
		about:  "the database is set back; when all tags went on, all streams are deleted",
		weight: 1, store: "mysql", alone: true,
		strike: func(s *strike) {
			dsn := s.db.Primary().DSN(database)
			kit.SQL(s, dsn, "CREATE OR REPLACE TABLE saved SELECT * FROM leaf_alloc")
			s.last(5*time.Second, 15*time.Second)
			kit.SQL(s, dsn, "UPDATE leaf_alloc a JOIN saved USING (biz_tag) SET a.max_id = saved.max_id", "DROP TABLE saved")
			s.note("the database is set back")
			above := map[string]int64{order: s.end(order), stock: s.end(stock)}
			for tag, end := range above {
				s.persist(tag+" to go on", func(context.Context) error {
					if last := s.highest(tag); last <= end {
						return fmt.Errorf("%d is the last ID, and must be above %d", last, end)
					}
					return nil
				})
			}
			s.wipe()
		},
	},
}

// removeKey loses a key and its history.
func (s *strike) removeKey(bucket, key string) {
	s.persist("deleting "+bucket+" "+key, func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, "KV_"+bucket)
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+bucket+"."+key))
		}
		return err
	})
	s.note("%s of %s deleted", key, bucket)
}

// damage puts bytes that nobody can read in the place of a key, and returns the value that it had at that moment.
func (s *strike) damage(bucket, key string) (value []byte) {
	s.persist("damaging "+bucket+" "+key, func(ctx context.Context) error {
		kv, err := s.js.KeyValue(ctx, bucket)
		if err != nil {
			return err
		}
		e, err := kv.Get(ctx, key)
		if err != nil {
			return err
		}
		value = e.Value()
		_, err = kv.Update(ctx, key, []byte("damaged"), e.Revision())
		return err
	})
	s.note("%s of %s damaged", key, bucket)
	return value
}

// underWay is more IDs than all generators may claim of a tag between a look at its record and the next moment.
const underWay = 20_000

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

// createAgain makes a tag that was lost, as an operator does by the documentation. A generator may have been faster.
func (s *strike) createAgain(tag string, above int64) {
	kind := map[string]string{
		invoice: "--order=strict", coupon: "--opaque=53", order: "--order=trend", stock: "--order=trend",
	}[tag]
	for end := time.Now().Add(time.Minute); ; s.pause(time.Second) {
		r := s.operator("tag", "add", tag, kind, "--max-id", fmt.Sprint(above))
		if r.Status != 0 && strings.Contains(r.Stderr, "exists") {
			r = s.operator("tag", "set", tag, "--max-id", fmt.Sprint(above))
		}
		if r.Status == 0 {
			return
		}
		if time.Now().After(end) {
			s.violated("operator", tag, "a lost tag cannot be created above all its IDs: "+r.Stderr)
		}
	}
}

// advance is what an operator does after a restore: docs/cluster.md.
func (s *strike) advance() {
	s.insist("tag", "advance", "--all")
	s.insist("tag", "set", invoice, "--max-id", fmt.Sprint(s.above(invoice)))
}

// excuseHolders declares what a loss of the events of workers excludes: if the registry loses or lost a record, too, the
// audit does not know who held its worker.
func (s *strike) excuseHolders() {
	s.judge.Excuse(judge.Excuse{Check: "audit taken_unclaimed", Tag: callers.Snowflakes, From: time.Now(), Why: s.name})
}

// excuseUnknown declares that callers of tags whose records are about to be lost may be told so, until the operator has
// created the tags again.
func (s *strike) excuseUnknown(tags ...string) {
	now := time.Now()
	for _, tag := range tags {
		s.judge.Excuse(judge.Excuse{Check: "reason", Tag: tag, From: now, Until: now.Add(30 * time.Second), Why: s.name})
	}
}

// purgeEvents deletes all events of claims. After a restore two claims of the same IDs stay in the audit until then.
func (s *strike) purgeEvents() {
	s.persist("purge of the events", func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, bus.EventStream)
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject("leaf.events.info.segment.>"))
		}
		return err
	})
	s.note("events purged")
}

// excuseRollback declares what docs/guarantees.md excludes while generators run through a restore of JetStream: a
// generator that does not know that these IDs were handed out may hand them out again, until the operator has moved
// max_id.
func (s *strike) excuseRollback(tag string, ids bus.Range, from time.Time) {
	until := from.Add(2 * time.Minute)
	for _, check := range []string{"twice", "order"} {
		s.judge.Excuse(judge.Excuse{
			Check: check, Tag: tag, IDs: ids, From: from, Until: until, Why: "JetStream was restored while generators ran",
		})
	}
}

// wipe deletes all that JetStream has, and does what docs/cluster.md says then. The tags are in the database.
func (s *strike) wipe() {
	above := s.inJetStream()
	s.excuseUnknown(slices.Collect(maps.Keys(above))...)
	record, keys := s.entry(bus.BucketInstallation, "installation").Value(), s.backUp(streamKeys)
	s.excuseHolders()
	s.removeStreams(s.streams()...)
	s.last(5*time.Second, 15*time.Second)
	s.makeBucket(bus.BucketInstallation)
	s.put(bus.BucketInstallation, "installation", record)
	s.restore(keys)
	s.makeBucket(bus.BucketTags)
	s.createAll(above)
}

// makeBucket makes an empty bucket, as nats kv add does.
func (s *strike) makeBucket(name string) {
	s.persist("making the bucket "+name, func(ctx context.Context) error {
		_, err := s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, Replicas: 3})
		return err
	})
}

package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
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
			s.removeStreams(events.Stream)
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
			end := s.excuseUnknown(tag)
			s.removeKey(bus.BucketTags, tag)
			s.last(0, 5*time.Second)
			s.createAgain(tag, above)
			end()
		},
	},
	{
		name: "tags-emptied", weight: 1, alone: true,
		about: "the bucket LEAF_TAGS is deleted, and the operator makes the bucket, and each tag above all IDs",
		strike: func(s *strike) {
			s.loseTags(func() {
				s.removeStreams(streamTags)
				s.last(5*time.Second, 15*time.Second)
				s.makeBucket(bus.BucketTags)
			})
		},
	},
	{
		name: "tags-removed", alone: true,
		about: "the bucket LEAF_TAGS is deleted, and the operator creates each tag above all IDs",
		strike: func(s *strike) {
			s.loseTags(func() {
				s.removeStreams(streamTags)
				s.last(5*time.Second, 15*time.Second)
			})
		},
	},
	{
		name: "tags-removed-restart", about: "the same, and a generator is started before the operator comes",
		weight: 1, alone: true,
		strike: func(s *strike) {
			s.loseTags(func() {
				s.removeStreams(streamTags)
				m := s.machine()
				m.kill()
				m.start()
				s.last(5*time.Second, 15*time.Second)
			})
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
			end := s.excuseUnknown(slices.Collect(maps.Keys(lost))...)
			s.removeStreams(streamTags)
			s.pause(time.Second) // answers that are on their way arrive
			for tag, ids := range lost {
				s.excuseRollback(tag, ids, time.Now())
			}
			s.restore(older)
			end()
			s.last(0, 5*time.Second)
			s.advance()
			s.purgeEvents()
			s.crowd.add(coupon, false)
		},
	},
	{
		name: "jetstream-wiped", weight: 1, alone: true,
		about: "all streams are deleted; the keys of opaque tags are kept, and the operator does the rest by docs/cluster.md",
		strike: func(s *strike) {
			keys := s.backUp(streamKeys)
			s.loseTags(func() {
				s.wipe()
				s.restore(keys)
				s.makeBucket(bus.BucketTags)
			})
		},
	},
	{
		name: "database-back-then-ledger-lost", weight: 1, store: "mysql", alone: true,
		about: "the database is set back; when all tags went on, all streams but LEAF_TAGS and LEAF_KEYS are deleted",
		strike: func(s *strike) {
			s.sql("CREATE OR REPLACE TABLE saved SELECT * FROM leaf_alloc")
			s.last(5*time.Second, 15*time.Second)
			s.sql("UPDATE leaf_alloc a JOIN saved USING (biz_tag) SET a.max_id = saved.max_id", "DROP TABLE saved")
			s.note("the database is set back")
			s.refilled()
			s.wipe(streamTags, streamKeys)
		},
	},
}

package main

import (
	"time"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/wire"
)

// Streams of JetStream.
const (
	streamTags         = "KV_" + wire.BucketTags
	streamWorkers      = "KV_" + wire.BucketWorkers
	streamKeys         = "KV_" + wire.BucketKeys
	streamInstallation = "KV_" + wire.BucketInstallation
)

// recordFaults are about what JetStream and the database keep.
var recordFaults = []*fault{
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
			record := s.entry(wire.BucketInstallation, "installation").Value()
			s.removeStreams(streamInstallation)
			if s.IntN(2) == 0 {
				m := s.machine() // it may not make another installation
				m.kill()
				m.start()
			}
			s.last(5*time.Second, 15*time.Second)
			s.makeBucket(wire.BucketInstallation)
			s.put(wire.BucketInstallation, "installation", record)
		},
	},
	{
		name: "record-damaged", weight: 1, harms: []string{harmsJetStream, harmsRules},
		about: "nobody can read a tag's record for a while",
		strike: func(s *strike) {
			tag := s.pick()
			value := s.damage(tag)
			s.last(2*time.Second, 10*time.Second)
			s.put(wire.BucketTags, tag, value) // nobody could claim meanwhile
		},
	},
	{
		name: "record-removed", weight: 1, alone: true,
		about: "a tag's record is deleted, and the operator creates the tag above all IDs",
		strike: func(s *strike) {
			tag := s.pick()
			above := s.above(tag)
			s.deleteRecord(tag)
			s.last(0, 5*time.Second)
			s.createAgain(tag, above)
		},
	},
	{
		// Nobody does anything for tags in MySQL. Without it, the operator says where each tag goes on.
		name: "tags-removed", weight: 2, alone: true,
		about: "the bucket LEAF_TAGS is deleted, and each tag is created again, above all IDs; a generator may start before",
		strike: func(s *strike) {
			s.loseTags(func() {
				s.removeStreams(streamTags)
				if s.IntN(2) == 0 {
					m := s.machine()
					m.kill()
					m.start()
				}
				s.goesOn()
				s.last(5*time.Second, 15*time.Second)
			})
		},
	},
	{
		name: "tags-restored", weight: 2, alone: true,
		about: "the bucket LEAF_TAGS is deleted while generators run, and a backup is restored",
		strike: func(s *strike) {
			s.insist("backup", "--force", s.backupFile())
			s.last(3*time.Second, 10*time.Second)
			s.removeStreams(streamTags)
			s.goesOn()
			s.last(0, 10*time.Second)
			s.insist("restore", s.backupFile())
		},
	},
	{
		// Every generator that runs knows all that was claimed.
		name: "tags-rolled-back", weight: 2, alone: true,
		about: "an older copy of the bucket LEAF_TAGS is put back while generators run",
		strike: func(s *strike) {
			older := s.backUpQuiet(streamTags)
			s.last(3*time.Second, 10*time.Second)
			s.removeStreams(streamTags)
			s.pause(time.Second) // what was claimed last arrives
			s.restore(older)
			s.last(0, 5*time.Second)
		},
	},
	{
		name: "jetstream-wiped", weight: 1, alone: true,
		about: "all streams are deleted; the key of opaque tags is kept, and the operator does the rest by docs/operate.md",
		strike: func(s *strike) {
			keys := s.backUp(streamKeys)
			s.loseTags(func() {
				s.wipe()
				s.restore(keys)
			})
		},
	},
	{
		name: "both-back", weight: 2, store: "mysql", alone: true,
		about: "LEAF_TAGS and the database are set back to the same moment, one half a minute after the other",
		strike: func(s *strike) {
			older := s.backUpQuiet(streamTags)
			s.copyTables()
			s.last(3*time.Second, 10*time.Second)
			back := []func(){
				func() { s.removeStreams(streamTags); s.pause(time.Second); s.restore(older) },
				s.setTablesBack,
			}
			first := s.IntN(2)
			back[first]()
			s.pause(30 * time.Second)
			back[1-first]()
			s.refilled()
		},
	},
	{
		name: "database-back-then-tags-removed", weight: 1, store: "mysql", alone: true,
		about: "the database is set back; when all tags went on, LEAF_TAGS is deleted",
		strike: func(s *strike) {
			s.copyTables()
			s.last(5*time.Second, 15*time.Second)
			s.setTablesBack()
			s.refilled()
			s.loseTags(func() { s.removeStreams(streamTags); s.goesOn() })
		},
	},
}

// pick chooses one of the tags that are always there.
func (s *strike) pick() (tag string) { return permanent[s.IntN(len(permanent))] }

// goesOn demands that callers of tags in MySQL get IDs that nobody had, without an operator.
func (s *strike) goesOn() {
	if s.db != nil {
		s.refilled()
	}
}

package bus

import "github.com/leafbus/leafbus/bus/internal/wire"

// QueueGroup is the queue group of all generators.
const QueueGroup = "leaf"

// The subjects of requests.
const (
	SubjectSegment   = "leaf.segment" // then a dot and the tag
	SubjectSnowflake = "leaf.snowflake"
	SubjectDecode    = "leaf.decode"
	SubjectClock     = "leaf.clock" // every generator that holds a worker answers

	SubjectTagsList    = "leaf.admin.tags.list"
	SubjectTagsGet     = "leaf.admin.tags.get"
	SubjectTagsCreate  = "leaf.admin.tags.create"
	SubjectTagsUpdate  = "leaf.admin.tags.update"
	SubjectTagsAdvance = "leaf.admin.tags.advance"
	SubjectTagsDelete  = "leaf.admin.tags.delete"
	SubjectTagsReveal  = "leaf.admin.tags.reveal"
	SubjectTagsMissing = "leaf.admin.tags.missing"

	SubjectWorkersList    = "leaf.admin.workers.list"
	SubjectWorkersRelease = "leaf.admin.workers.release"

	SubjectClaims = "leaf.admin.claims"

	SubjectBuffers = "leaf.admin.buffers" // every generator answers
	SubjectKnown   = "leaf.admin.known"   // every generator answers
)

// The stream and the KV buckets in JetStream.
const (
	// EventStream keeps the events. It must never cover a subject of requests: callers would get the
	// stream's acknowledgement as the answer.
	EventStream   = "LEAF_EVENTS"
	EventSubjects = wire.SubjectEvents + ".>"
	AlertSubjects = wire.SubjectEvents + ".alert.>" // an operator should look

	BucketInstallation = "LEAF"
	BucketTags         = "LEAF_TAGS"
	BucketLedger       = "LEAF_LEDGER"
	BucketWorkers      = "LEAF_WORKERS"
	BucketKeys         = "LEAF_KEYS" // of opaque tags
)

package bus

import "github.com/leafbus/leafbus/bus/internal/wire"

// Version is the version of the protocol and of its services (SemVer).
const Version = "0.1.0"

// QueueGroup is the queue group of all generators.
const QueueGroup = "leaf"

// The subjects of requests.
const (
	// SubjectSegment and a dot come before the tag.
	SubjectSegment   = "leaf.segment"
	SubjectSnowflake = "leaf.snowflake"
	SubjectDecode    = "leaf.decode"
	// SubjectClock is answered by every generator that holds a worker.
	SubjectClock = "leaf.clock"

	SubjectTagsList   = "leaf.admin.tags.list"
	SubjectTagsGet    = "leaf.admin.tags.get"
	SubjectTagsCreate = "leaf.admin.tags.create"
	SubjectTagsUpdate = "leaf.admin.tags.update"
	SubjectTagsDelete = "leaf.admin.tags.delete"

	SubjectWorkersList    = "leaf.admin.workers.list"
	SubjectWorkersRelease = "leaf.admin.workers.release"

	// SubjectBuffers is answered by every generator.
	SubjectBuffers = "leaf.admin.buffers"
)

// What is kept in JetStream.
const (
	// EventStream keeps the events; it must never cover a subject of requests,
	// whose callers would get the stream's acknowledgement for an answer.
	EventStream = "LEAF_EVENTS"

	// EventSubjects are all events, AlertSubjects those that want an operator.
	EventSubjects = wire.SubjectEvents + ".>"
	AlertSubjects = wire.SubjectEvents + ".alert.>"

	// BucketInstallation, BucketTags and BucketWorkers are KV buckets.
	BucketInstallation = "LEAF"
	BucketTags         = "LEAF_TAGS"
	BucketWorkers      = "LEAF_WORKERS"
)

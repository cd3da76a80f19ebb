package bus

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

// The subjects by which generators talk to each other. No user needs them.
const (
	subjectPresence   = "leaf.internal.presence" // each second: I am here, and can serve this
	subjectTagChanged = "leaf.internal.tag"      // a tag's new record; answered when it is taken in
	subjectReserved   = "leaf.internal.reserved" // the end of a range that was reserved just now
)

// What is kept in JetStream.
const (
	// EventStream keeps the events; it must never cover a subject of requests,
	// whose callers would get the stream's acknowledgement for an answer.
	EventStream = "LEAF_EVENTS"

	subjectEvents = "leaf.events"
	// EventSubjects are all events, AlertSubjects those that want an operator.
	EventSubjects = subjectEvents + ".>"
	AlertSubjects = subjectEvents + ".alert.>"
	// Those that tell the end of an alert, or of the process that told it.
	recoveredSubjects = subjectEvents + ".info.*.recovered.>"
	nodeSubjects      = subjectEvents + ".info.node.>"
	acquiredSubjects  = subjectEvents + ".info.worker.acquired.>"
	refillSubject     = subjectEvents + ".info.segment.refill."

	// BucketInstallation, BucketTags and BucketWorkers are KV buckets.
	BucketInstallation = "LEAF"
	BucketTags         = "LEAF_TAGS"
	BucketWorkers      = "LEAF_WORKERS"
)

// The micro services of a generator: one for each thing that it may not be
// able to serve for a while.
const (
	serviceLeaf      = "leaf"
	serviceSegment   = "leaf-segment"
	serviceSnowflake = "leaf-snowflake"
)

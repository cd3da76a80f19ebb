package bus

// QueueGroup is the queue group of all generators.
const QueueGroup = "leaf"

// The subjects of requests.
const (
	SubjectSegment   = "leaf.segment" // then a dot and the tag
	SubjectSnowflake = "leaf.snowflake"
	SubjectDecode    = "leaf.decode"
	SubjectClock     = "leaf.clock" // every generator that holds a worker answers
)

// The KV buckets in JetStream.
const (
	BucketInstallation = "LEAF"
	BucketTags         = "LEAF_TAGS"
	BucketWorkers      = "LEAF_WORKERS"
	BucketKeys         = "LEAF_KEYS" // of opaque tags
)

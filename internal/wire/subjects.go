package wire

import "time"

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

// DefaultTimeout bounds a call of a Go client if neither the context nor the client's options do.
const DefaultTimeout = 5 * time.Second

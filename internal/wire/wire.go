// Package wire has the parts of the protocol that the client and the generators share but users do
// not need: internal subjects and headers, and small encoders.
package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

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

// The subjects that generators use among themselves.
const (
	SubjectPresence = "leaf.internal.presence" // a heartbeat each second: what this generator can serve
	// a record that was written; with a reply subject, each generator answers what it has in force
	SubjectRecord = "leaf.internal.record"
	SubjectTake   = "leaf.internal.take" // then a dot and the run of the generator that is asked for IDs of a tag
	// then a dot and the run of the generator that gets unused IDs from one that stops
	SubjectGive = "leaf.internal.give"
	// begins the subjects on which generators get answers, such as keys of opaque tags
	SubjectInbox = "leaf.internal.inbox"
	// then a dot, the run of a generator, a dot, and the name of the administrative request that it
	// gets from a peer
	SubjectAdmin = "leaf.internal.admin"
)

// The parts of the subjects of events, which are leaf.events.<severity>.<kind>.<what>.<key>.
const (
	SubjectEvents = "leaf.events"
	RefillSubject = SubjectEvents + ".info.segment.refill."

	Info  = "info" // the severities
	Alert = "alert"
)

// The micro services of a generator. Each can be unavailable for a while on its own.
const (
	ServiceLeaf      = "leaf"
	ServiceSegment   = "leaf-segment"
	ServiceSnowflake = "leaf-snowflake"
	// StatsEndpoint is the endpoint of ServiceLeaf whose $SRV.STATS carry the generator's state.
	StatsEndpoint = "buffers"
)

// The headers of CloudEvents in binary mode.
const (
	HeaderSpec    = "ce-specversion"
	HeaderID      = "ce-id"
	HeaderSource  = "ce-source"
	HeaderType    = "ce-type"
	HeaderSubject = "ce-subject"
	HeaderTime    = "ce-time"
	HeaderContent = "ce-datacontenttype"

	JSONType = "application/json"
)

// The headers of an error, as package micro of nats.go sends them. A client does not need that
// package.
const (
	HeaderErrorCode = "Nats-Service-Error-Code"
	HeaderError     = "Nats-Service-Error"
)

// HeaderKey is the ID of the key of an opaque tag, of which a generator sends numbers to another
// one.
const HeaderKey = "Leaf-Key"

// HeaderRefills of a refusal says that the generator can reserve the IDs for which another one has
// asked.
const HeaderRefills = "Leaf-Refills"

const (
	// HeaderTimeout is how many ms the sender of an administrative request waits for the
	// answer. After that the sender takes the request as failed, so no generator may carry it out.
	HeaderTimeout = "Leaf-Timeout"
	// MaxAdminTimeout bounds the work on an administrative request, even if the sender
	// waits longer.
	MaxAdminTimeout = 10 * time.Second
)

// Encode returns v as JSON without HTML escapes. It panics if v is not JSON, so it is for
// types of the protocol only.
func Encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("leafbus: a value that is not JSON: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// ParseID reads a positive decimal without sign or leading zeros.
func ParseID(b []byte) (int64, bool) {
	if len(b) == 0 || b[0] < '1' || b[0] > '9' {
		return 0, false
	}
	id, err := strconv.ParseInt(string(b), 10, 64)
	return id, err == nil
}

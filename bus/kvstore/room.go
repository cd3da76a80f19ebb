package kvstore

import (
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/wire"
)

// The errors of JetStream that need an answer of their own.
const (
	codeAccountFull  jetstream.ErrorCode = 10002 // JSAccountResourcesExceededErr
	codeNoPeers      jetstream.ErrorCode = 10005 // JSClusterNoPeersErrF
	codeNoLeader     jetstream.ErrorCode = 10008 // JSClusterNotAvailErr
	codeServerFull   jetstream.ErrorCode = 10023 // JSInsufficientResourcesErr
	codeNoStorage    jetstream.ErrorCode = 10047 // JSStorageResourcesExceededErr
	codeNotCreated   jetstream.ErrorCode = 10049 // JSStreamCreateErrF
	codeMsgTooBig    jetstream.ErrorCode = 10054 // JSStreamMessageExceedsMaximumErr
	codeNotClustered jetstream.ErrorCode = 10074 // JSStreamReplicasNotSupportedErr
	codeStoreFailed  jetstream.ErrorCode = 10077 // JSStreamStoreFailedF
	codeNeedsSize    jetstream.ErrorCode = 10113 // JSStreamMaxBytesRequired
	codeSizeAbove    jetstream.ErrorCode = 10122 // JSStreamMaxStreamBytesExceeded
)

// code is that of an error of JetStream; 0: it is another error.
func code(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

// mismatch reports whether a write was refused because the key has another revision.
// The library's own errors for that do not cover all cases.
func mismatch(err error) bool {
	c := code(err)
	return c == jetstream.JSErrCodeStreamWrongLastSequence || c == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// full reports whether JetStream refused a write because of a limit.
func full(err error) bool {
	switch code(err) {
	case codeServerFull, codeAccountFull, codeMsgTooBig:
		return true
	case codeStoreFailed: // its text has the cause
		return strings.Contains(err.Error(), "maximum bytes exceeded") || strings.Contains(err.Error(),
			"maximum messages exceeded")
	}
	return false
}

// sizeOf is the size of a bucket in an account that demands one: enough for some 500,000 tags, or
// for all workers.
func sizeOf(bucket string) int64 {
	if bucket == wire.BucketTags {
		return 256 << 20
	}
	return 16 << 20
}

// leastBytes is where shrink ends: a smaller size does not help.
const leastBytes = 1 << 20

// shrink calls create with a size, and with half of it as often as the account or the server has no
// room for so much.
func shrink(size int64, create func(maxBytes int64) error) error {
	for {
		err := create(size)
		if !tooLarge(err) || size/2 < leastBytes {
			return err
		}
		size /= 2
	}
}

// tooLarge reports whether the account or the servers have no room for a stream of that size.
func tooLarge(err error) bool {
	switch code(err) {
	case codeSizeAbove, codeNoStorage, codeServerFull:
		return true
	case codeNoPeers: // its text has the causes
		return strings.Contains(err.Error(), "insufficient storage")
	}
	return false
}

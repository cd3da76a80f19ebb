package kvstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
)

// The errors of JetStream that are about room.
const (
	codeAccountFull jetstream.ErrorCode = 10002 // JSAccountResourcesExceededErr
	codeMsgTooBig   jetstream.ErrorCode = 10054 // JSStreamMessageExceedsMaximumErr
	codeNeedsSize   jetstream.ErrorCode = 10113 // JSStreamMaxBytesRequired
	codeSizeAbove   jetstream.ErrorCode = 10122 // JSStreamMaxStreamBytesExceeded
	codeNoStorage   jetstream.ErrorCode = 10047 // JSStorageResourcesExceededErr
	codeServerFull  jetstream.ErrorCode = 10023 // JSInsufficientResourcesErr
	codeStoreFailed jetstream.ErrorCode = 10077 // JSStreamStoreFailedF
)

// The sizes of buckets in an account that demands one: enough for some 500,000 tags, 100,000 keys of opaque tags, and
// all workers.
const (
	tagsBytes  = 256 << 20
	keysBytes  = 64 << 20
	smallBytes = 16 << 20
	leastBytes = 1 << 20 // a smaller size does not help
)

// shrink calls create with a size, and with half of it as often as the account or the server has no room for so much.
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

// code is that of an error of JetStream; 0: it is another error.
func code(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

// failedWrite is the error of a write that may have happened, which matches [allocator.ErrUncertain], or that surely
// did not: JetStream looks at its limits before it stores anything.
func failedWrite(err error) error {
	if !full(err) {
		return fmt.Errorf("%w: %w", allocator.ErrUncertain, err)
	}
	return fmt.Errorf("%w: nothing was written, because JetStream is full: raise the limit of the bucket, the "+
		"account or the server: %w",
		allocator.ErrUnavailable, err)
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

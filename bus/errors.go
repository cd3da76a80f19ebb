package bus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
)

// Reason is the stable word of an error, for programs. It is an error itself,
// so that errors.Is(err, bus.UnknownTag) works.
type Reason string

// The reasons.
const (
	BadRequest       Reason = "bad_request"       // 400
	BadTag           Reason = "bad_tag"           // 400
	UnknownTag       Reason = "unknown_tag"       // 404
	Exists           Reason = "exists"            // 409, admin
	Conflict         Reason = "conflict"          // 409, admin
	BatchTooLarge    Reason = "batch_too_large"   // 413
	Overloaded       Reason = "overloaded"        // 429: ask again, later
	QuotaExceeded    Reason = "quota_exceeded"    // 429: no generator says it yet
	Internal         Reason = "internal"          // 500
	StoreUnavailable Reason = "store_unavailable" // 503
	StoreRegressed   Reason = "store_regressed"   // 503: an operator is needed
	ClockBackwards   Reason = "clock_backwards"   // 503: ask again, another generator answers
	NoWorkerID       Reason = "no_worker_id"      // 503: ask again, another generator answers
	Draining         Reason = "draining"          // 503: ask again, another generator answers
	TimedOut         Reason = "timed_out"         // 504: waited too long for a segment
	Exhausted        Reason = "exhausted"         // 507: for good
)

// Error makes a reason an error.
func (r Reason) Error() string { return string(r) }

// Error is a generator's answer in place of IDs.
type Error struct {
	Code       int
	Reason     Reason
	Message    string        // for people
	RetryAfter time.Duration // a hint; 0 is none
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d %s)", e.Message, e.Code, e.Reason) }

// Unwrap makes the error match its reason.
func (e *Error) Unwrap() error { return e.Reason }

// errorBody is the JSON of an Error on the wire.
type errorBody struct {
	Code         int    `json:"code"`
	Reason       Reason `json:"reason"`
	Message      string `json:"message"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

// overloadedRetry is the hint to callers that were refused for overload.
const overloadedRetry = 100 * time.Millisecond

// toError maps what the packages below return to the contract's codes, in this
// one place.
func toError(err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	e := &Error{Code: 500, Reason: Internal, Message: err.Error()}
	for _, m := range []struct {
		err    error
		code   int
		reason Reason
	}{
		{allocator.ErrUncertain, 504, TimedOut},
		{allocator.ErrUnavailable, 503, StoreUnavailable}, // first: the cause in it may be another of these
		{allocator.ErrBadTag, 400, BadTag},
		{allocator.ErrBadCount, 400, BadRequest},
		{allocator.ErrBadValue, 400, BadRequest},
		{allocator.ErrUnknownTag, 404, UnknownTag},
		{allocator.ErrExists, 409, Exists},
		{allocator.ErrConflict, 409, Conflict},
		{allocator.ErrBatchTooLarge, 413, BatchTooLarge},
		{allocator.ErrOverloaded, 429, Overloaded},
		{allocator.ErrRegressed, 503, StoreRegressed},
		{allocator.ErrClosed, 503, Draining},
		{allocator.ErrTimedOut, 504, TimedOut},
		{allocator.ErrExhausted, 507, Exhausted},
		{snowflake.ErrNotAnID, 400, BadRequest},
		{snowflake.ErrOverloaded, 429, Overloaded},
		{snowflake.ErrClockBackwards, 503, ClockBackwards},
		{snowflake.ErrNoWorker, 503, NoWorkerID},
		{snowflake.ErrTimedOut, 504, TimedOut},
		{snowflake.ErrExhausted, 507, Exhausted},
	} {
		if errors.Is(err, m.err) {
			e.Code, e.Reason = m.code, m.reason
			break
		}
	}
	if away, ok := errors.AsType[*allocator.UnavailableError](err); ok {
		e.RetryAfter = away.RetryAfter
	}
	if behind, ok := errors.AsType[*snowflake.BackwardsError](err); ok {
		e.RetryAfter = behind.Offset
	}
	if e.Reason == Overloaded {
		e.RetryAfter = overloadedRetry
	}
	return e
}

// message is the reply that carries e, to be sent to the subject reply.
func (e *Error) message(reply string) *nats.Msg {
	msg := nats.NewMsg(reply)
	msg.Header[micro.ErrorCodeHeader] = []string{strconv.Itoa(e.Code)}
	msg.Header[micro.ErrorHeader] = []string{e.Message}
	msg.Data = e.body()
	return msg
}

func (e *Error) body() []byte {
	return encode(errorBody{e.Code, e.Reason, e.Message, e.RetryAfter.Milliseconds()})
}

// encode is v as JSON in plain characters: no HTML escapes, no line's end.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("bus: a value that is not JSON: %v", err)) // types of this package alone
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// replyError returns the error that a reply carries, nil if it carries none.
func replyError(msg *nats.Msg) error {
	code := msg.Header.Get(micro.ErrorCodeHeader)
	text := msg.Header.Get(micro.ErrorHeader)
	if code == "" && text == "" {
		return nil
	}
	var body errorBody
	if err := json.Unmarshal(msg.Data, &body); err != nil || body.Reason == "" {
		// Not from a generator of ours, but an error all the same.
		n, _ := strconv.Atoi(code)
		return &Error{Code: n, Reason: Internal, Message: text}
	}
	return &Error{
		Code: body.Code, Reason: body.Reason, Message: body.Message,
		RetryAfter: time.Duration(body.RetryAfterMS) * time.Millisecond,
	}
}

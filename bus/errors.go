package bus

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/wire"
)

// Reason is the stable word of an error, for programs. It is an error itself, so
// errors.Is(err, bus.UnknownTag) works.
type Reason string

// The reasons.
const (
	BadRequest       Reason = "bad_request"       // 400
	BadTag           Reason = "bad_tag"           // 400
	Paused           Reason = "paused"            // 403: an operator has paused the tag
	UnknownTag       Reason = "unknown_tag"       // 404
	Exists           Reason = "exists"            // 409, admin
	Conflict         Reason = "conflict"          // 409, admin
	BatchTooLarge    Reason = "batch_too_large"   // 413
	Overloaded       Reason = "overloaded"        // 429: retry later
	QuotaExceeded    Reason = "quota_exceeded"    // 429: the tag's quota is used up; retry later
	Internal         Reason = "internal"          // 500
	StoreUnavailable Reason = "store_unavailable" // 503
	ClockBackwards   Reason = "clock_backwards"   // 503: retry, another generator answers
	NoWorkerID       Reason = "no_worker_id"      // 503: retry, another generator answers
	Draining         Reason = "draining"          // 503: retry, another generator answers
	TimedOut         Reason = "timed_out"         // 504: the request waited too long for a segment
	Exhausted        Reason = "exhausted"         // 507: no IDs are left, for good
)

// Error makes a reason an error.
func (r Reason) Error() string { return string(r) }

// Error is a generator's answer in place of IDs.
type Error struct {
	Code       int
	Reason     Reason
	Message    string        // for people
	RetryAfter time.Duration // a hint; 0: none
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

// MarshalJSON implements [json.Marshaler].
func (e *Error) MarshalJSON() ([]byte, error) {
	return wire.Encode(errorBody{e.Code, e.Reason, e.Message, e.RetryAfter.Milliseconds()}), nil
}

// ReplyError returns the error that a reply carries: an *[Error], or nil.
func ReplyError(msg *nats.Msg) error {
	code := msg.Header.Get(wire.HeaderErrorCode)
	text := msg.Header.Get(wire.HeaderError)
	if code == "" && text == "" {
		return nil
	}
	var body errorBody
	if err := json.Unmarshal(msg.Data, &body); err != nil || body.Reason == "" {
		n, _ := strconv.Atoi(code) // the service is not Leafbus
		return &Error{Code: n, Reason: Internal, Message: text}
	}
	return &Error{body.Code, body.Reason, body.Message, time.Duration(body.RetryAfterMS) * time.Millisecond}
}

func badRequest(format string, a ...any) error {
	return &Error{Code: 400, Reason: BadRequest, Message: fmt.Sprintf(format, a...)}
}

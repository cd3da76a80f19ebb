package generator

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// overloadedRetry is after how long callers that were refused for overload should retry.
const overloadedRetry = 100 * time.Millisecond

// codes has the code of each reason.
var codes = map[bus.Reason]int{
	bus.BadRequest: 400, bus.BadTag: 400, bus.Paused: 403, bus.UnknownTag: 404, bus.Exists: 409, bus.Conflict: 409,
	bus.BatchTooLarge: 413, bus.Overloaded: 429, bus.QuotaExceeded: 429, bus.Internal: 500, bus.StoreUnavailable: 503,
	bus.ClockBackwards: 503, bus.NoWorkerID: 503, bus.Draining: 503, bus.TimedOut: 504, bus.Exhausted: 507,
}

// reasons has the reasons of the errors of the packages below. The first that an error matches
// counts.
var reasons = []struct {
	err    error
	reason bus.Reason
}{
	{allocator.ErrUncertain, bus.TimedOut},
	{allocator.ErrUnavailable, bus.StoreUnavailable}, // before the others: its cause may be one of them
	{allocator.ErrTagsLost, bus.StoreUnavailable},
	{idspace.ErrBadTag, bus.BadTag},
	{allocator.ErrBadCount, bus.BadRequest},
	{idspace.ErrBadValue, bus.BadRequest},
	{allocator.ErrPaused, bus.Paused},
	{allocator.ErrUnknownTag, bus.UnknownTag},
	{allocator.ErrExists, bus.Exists},
	{allocator.ErrConflict, bus.Conflict},
	{allocator.ErrBatchTooLarge, bus.BatchTooLarge},
	{allocator.ErrOverloaded, bus.Overloaded},
	{allocator.ErrQuota, bus.QuotaExceeded},
	{allocator.ErrClosed, bus.Draining},
	{allocator.ErrTimedOut, bus.TimedOut},
	{allocator.ErrExhausted, bus.Exhausted},
	{snowflake.ErrNotAnID, bus.BadRequest},
	{snowflake.ErrOverloaded, bus.Overloaded},
	{snowflake.ErrClockBackwards, bus.ClockBackwards},
	{snowflake.ErrNoWorker, bus.NoWorkerID},
	{snowflake.ErrTimedOut, bus.TimedOut},
	{snowflake.ErrExhausted, bus.Exhausted},
}

// newError returns the error of a reason.
func newError(reason bus.Reason, format string, a ...any) *bus.Error {
	return &bus.Error{Code: codes[reason], Reason: reason, Message: fmt.Sprintf(format, a...)}
}

func conflict(format string, a ...any) *bus.Error { return newError(bus.Conflict, format, a...) }

func badRequest(format string, a ...any) *bus.Error { return newError(bus.BadRequest, format, a...) }

// unconfirmed is the error of a change that some generators may not have applied.
func unconfirmed(err error, then string) error { return newError(bus.TimedOut, "%v; %s", err, then) }

// toError maps the errors of the packages below to codes and reasons. No other place does.
func toError(err error) *bus.Error {
	if known, ok := errors.AsType[*bus.Error](err); ok {
		return known
	}
	e := newError(bus.Internal, "%v", err)
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			e = newError(r.reason, "%v", err)
			break
		}
	}
	if away, ok := errors.AsType[*allocator.UnavailableError](err); ok {
		e.RetryAfter = away.RetryAfter
	}
	if quota, ok := errors.AsType[*allocator.QuotaError](err); ok {
		e.RetryAfter = quota.RetryAfter
	}
	if behind, ok := errors.AsType[*snowflake.BackwardsError](err); ok {
		e.RetryAfter = behind.Offset
	}
	if e.Reason == bus.Overloaded {
		e.RetryAfter = overloadedRetry
	}
	return e
}

// public returns e, which was made of err, as callers may read it. The causes of these reasons name
// hosts, databases, users and folders: operators find them in the log, in the alerts, in the
// readiness and with `leaf doctor`.
func public(log *slog.Logger, e *bus.Error, err error) *bus.Error {
	if errors.Is(err, allocator.ErrDamaged) || errors.Is(err, errStarting) { // they name none
		return e
	}
	text := ""
	switch e.Reason {
	case bus.StoreUnavailable:
		text = "the store is unavailable"
	case bus.NoWorkerID:
		text = "no worker ID"
	case bus.Internal:
		log.Error("a request failed", "error", e.Message) // nothing else reports it
		text = "an internal error"
	default:
		return e
	}
	shown := *e
	shown.Message = text + ": `leaf doctor` and the generator's log say why"
	return &shown
}

// errorMessage returns the reply that carries e, for the subject reply.
func errorMessage(e *bus.Error, reply string) *nats.Msg {
	msg := nats.NewMsg(reply)
	msg.Header[micro.ErrorCodeHeader] = []string{strconv.Itoa(e.Code)}
	msg.Header[micro.ErrorHeader] = []string{e.Message}
	msg.Data = wire.Encode(e)
	return msg
}

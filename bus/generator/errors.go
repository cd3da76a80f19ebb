package generator

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// overloadedRetry is after how long callers that were refused for overload should retry.
const overloadedRetry = 100 * time.Millisecond

// toError maps the errors of the packages below to codes and reasons. No other place does.
func toError(err error) *bus.Error {
	if known, ok := errors.AsType[*bus.Error](err); ok {
		return known
	}
	e := &bus.Error{Code: 500, Reason: bus.Internal, Message: err.Error()}
	for _, m := range []struct {
		err    error
		code   int
		reason bus.Reason
	}{
		{allocator.ErrUncertain, 504, bus.TimedOut},
		{allocator.ErrUnavailable, 503, bus.StoreUnavailable}, // before the others: its cause may be one of them
		{allocator.ErrTagsLost, 503, bus.StoreUnavailable},
		{allocator.ErrBadTag, 400, bus.BadTag},
		{allocator.ErrBadCount, 400, bus.BadRequest},
		{allocator.ErrBadValue, 400, bus.BadRequest},
		{allocator.ErrPaused, 403, bus.Paused},
		{allocator.ErrUnknownTag, 404, bus.UnknownTag},
		{allocator.ErrExists, 409, bus.Exists},
		{allocator.ErrConflict, 409, bus.Conflict},
		{allocator.ErrBatchTooLarge, 413, bus.BatchTooLarge},
		{allocator.ErrOverloaded, 429, bus.Overloaded},
		{allocator.ErrQuota, 429, bus.QuotaExceeded},
		{allocator.ErrClosed, 503, bus.Draining},
		{allocator.ErrTimedOut, 504, bus.TimedOut},
		{allocator.ErrExhausted, 507, bus.Exhausted},
		{snowflake.ErrNotAnID, 400, bus.BadRequest},
		{snowflake.ErrOverloaded, 429, bus.Overloaded},
		{snowflake.ErrClockBackwards, 503, bus.ClockBackwards},
		{snowflake.ErrNoWorker, 503, bus.NoWorkerID},
		{snowflake.ErrTimedOut, 504, bus.TimedOut},
		{snowflake.ErrExhausted, 507, bus.Exhausted},
	} {
		if errors.Is(err, m.err) {
			e.Code, e.Reason = m.code, m.reason
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

// public returns e, which was made of err, as callers may read it. The causes of these reasons name hosts, databases,
// users and folders: operators find them in the log, in the alerts, in the readiness and with `leaf doctor`.
func (g *Generator) public(e *bus.Error, err error) *bus.Error {
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
		g.log.Error("a request failed", "error", e.Message) // nothing else reports it
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

func conflict(format string, a ...any) *bus.Error {
	return &bus.Error{Code: 409, Reason: bus.Conflict, Message: fmt.Sprintf(format, a...)}
}

func badRequest(format string, a ...any) *bus.Error {
	return &bus.Error{Code: 400, Reason: bus.BadRequest, Message: fmt.Sprintf(format, a...)}
}

package generator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/snowflake"
)

func TestErrorOnTheWire(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		code   string
		reason bus.Reason
	}{
		{idspace.CheckTag(""), "400", bus.BadTag},
		{fmt.Errorf("%w: 0", allocator.ErrBadCount), "400", bus.BadRequest},
		{allocator.CheckStep(0, 10), "400", bus.BadRequest},
		{badRequest("no"), "400", bus.BadRequest},
		{allocator.ErrUnknownTag, "404", bus.UnknownTag},
		{allocator.ErrDeleted, "404", bus.UnknownTag},
		{allocator.ErrExists, "409", bus.Exists},
		{allocator.ErrConflict, "409", bus.Conflict},
		{allocator.ErrBatchTooLarge, "413", bus.BatchTooLarge},
		{allocator.ErrOverloaded, "429", bus.Overloaded},
		{errors.New("boom"), "500", bus.Internal},
		{allocator.ErrUnavailable, "503", bus.StoreUnavailable},
		{&allocator.UnavailableError{Err: errors.New("gone"), RetryAfter: 12 * time.Millisecond}, "503", bus.StoreUnavailable},
		{&allocator.UnavailableError{Err: allocator.ErrConflict}, "503", bus.StoreUnavailable},
		{allocator.ErrTagsLost, "503", bus.StoreUnavailable},
		{allocator.ErrClosed, "503", bus.Draining},
		{allocator.ErrTimedOut, "504", bus.TimedOut},
		{allocator.ErrExhausted, "507", bus.Exhausted},
		{fmt.Errorf("%w: 0", snowflake.ErrBadCount), "400", bus.BadRequest},
		{fmt.Errorf("%w: it is not positive", snowflake.ErrNotAnID), "400", bus.BadRequest},
		{snowflake.ErrBatchTooLarge, "413", bus.BatchTooLarge},
		{snowflake.ErrOverloaded, "429", bus.Overloaded},
		{&snowflake.BackwardsError{Offset: time.Hour}, "503", bus.ClockBackwards},
		{fmt.Errorf("%w: %w", snowflake.ErrNoWorker, errors.New("gone")), "503", bus.NoWorkerID},
		{snowflake.ErrClosed, "503", bus.Draining},
		{snowflake.ErrTimedOut, "504", bus.TimedOut},
		{snowflake.ErrExhausted, "507", bus.Exhausted},
	} {
		msg := errorMessage(toError(c.err), "reply")
		if got := msg.Header.Get("Nats-Service-Error-Code"); got != c.code {
			t.Errorf("%v: code %s, want %s", c.err, got, c.code)
		}
		if msg.Header.Get("Nats-Service-Error") == "" {
			t.Errorf("%v: no text for people", c.err)
		}
		back := bus.ReplyError(msg)
		if !errors.Is(back, c.reason) {
			t.Errorf("%v: read back as %v, want %v", c.err, back, c.reason)
		}
	}
}

package bus

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
)

func TestErrorOnTheWire(t *testing.T) {
	for _, c := range []struct {
		err    error
		code   string
		reason Reason
	}{
		{allocator.CheckTag(""), "400", BadTag},
		{fmt.Errorf("%w: 0", allocator.ErrBadCount), "400", BadRequest},
		{allocator.CheckStep(0, 10), "400", BadRequest},
		{badRequest("no"), "400", BadRequest},
		{allocator.ErrUnknownTag, "404", UnknownTag},
		{allocator.ErrDeleted, "404", UnknownTag},
		{allocator.ErrExists, "409", Exists},
		{allocator.ErrConflict, "409", Conflict},
		{allocator.ErrBatchTooLarge, "413", BatchTooLarge},
		{allocator.ErrOverloaded, "429", Overloaded},
		{errors.New("boom"), "500", Internal},
		{allocator.ErrUnavailable, "503", StoreUnavailable},
		{&allocator.UnavailableError{Err: errors.New("gone"), RetryAfter: 12 * time.Millisecond}, "503", StoreUnavailable},
		{&allocator.UnavailableError{Err: allocator.ErrConflict}, "503", StoreUnavailable},
		{&allocator.RegressedError{Tag: "a", Got: 1, Seen: 2}, "503", StoreRegressed},
		{allocator.ErrClosed, "503", Draining},
		{allocator.ErrTimedOut, "504", TimedOut},
		{allocator.ErrExhausted, "507", Exhausted},
		{fmt.Errorf("%w: 0", snowflake.ErrBadCount), "400", BadRequest},
		{fmt.Errorf("%w: it is not positive", snowflake.ErrNotAnID), "400", BadRequest},
		{snowflake.ErrBatchTooLarge, "413", BatchTooLarge},
		{snowflake.ErrOverloaded, "429", Overloaded},
		{&snowflake.BackwardsError{Offset: time.Hour}, "503", ClockBackwards},
		{fmt.Errorf("%w: %w", snowflake.ErrNoWorker, errors.New("gone")), "503", NoWorkerID},
		{snowflake.ErrClosed, "503", Draining},
		{snowflake.ErrTimedOut, "504", TimedOut},
		{snowflake.ErrExhausted, "507", Exhausted},
	} {
		msg := toError(c.err).message("reply")
		if got := msg.Header.Get("Nats-Service-Error-Code"); got != c.code {
			t.Errorf("%v: code %s, want %s", c.err, got, c.code)
		}
		if msg.Header.Get("Nats-Service-Error") == "" {
			t.Errorf("%v: no text for people", c.err)
		}
		back := replyError(msg)
		if !errors.Is(back, c.reason) {
			t.Errorf("%v: read back as %v, want %v", c.err, back, c.reason)
		}
	}
}

// What tells callers when to ask again, and that they may.
func TestRetry(t *testing.T) {
	for _, c := range []struct {
		err   error
		again bool
		after time.Duration
	}{
		{&snowflake.BackwardsError{Offset: 12 * time.Millisecond}, true, 12 * time.Millisecond},
		{fmt.Errorf("%w: none", snowflake.ErrNoWorker), true, 0},
		{snowflake.ErrClosed, true, 0},
		{snowflake.ErrOverloaded, true, overloadedRetry},
		{snowflake.ErrTimedOut, true, 0},
		{snowflake.ErrNotAnID, false, 0},
		{snowflake.ErrBatchTooLarge, false, 0},
		{snowflake.ErrExhausted, false, 0},
	} {
		err := replyError(toError(c.err).message("reply"))
		if e, ok := errors.AsType[*Error](err); !ok || e.RetryAfter != c.after || retryable(err) != c.again {
			t.Errorf("%v: read back as %#v, asked again: %v; want %v after %v", c.err, err, retryable(err), c.again, c.after)
		}
	}
}

func TestErrorBody(t *testing.T) {
	e := &Error{Code: 503, Reason: StoreUnavailable, Message: `a <b> & "c"`, RetryAfter: 12 * time.Millisecond}
	want := `{"code":503,"reason":"store_unavailable","message":"a <b> & \"c\"","retry_after_ms":12}`
	if got := string(e.body()); got != want {
		t.Errorf("body %s, want %s", got, want)
	}
	back, ok := errors.AsType[*Error](replyError(e.message("reply")))
	if !ok || *back != *e {
		t.Errorf("read back as %+v, want %+v", back, e)
	}
}

// Answers of services that are not ours are errors too.
func TestForeignError(t *testing.T) {
	for name, header := range map[string]nats.Header{
		"code alone": {"Nats-Service-Error-Code": {"418"}},
		"text alone": {"Nats-Service-Error": {"teapot"}},
	} {
		if err := replyError(&nats.Msg{Header: header, Data: []byte("7")}); err == nil {
			t.Errorf("%s: taken for IDs", name)
		}
	}
	if err := replyError(&nats.Msg{Data: []byte("7")}); err != nil {
		t.Errorf("IDs are taken for an error: %v", err)
	}
}

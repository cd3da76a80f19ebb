package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// firstAttempt bounds the first attempt at a request, to notice a lost answer soon. After each
	// attempt without an answer the next one may last twice as long, up to lastAttempt, which is
	// longer than a generator lets a request wait by default.
	firstAttempt = time.Second
	lastAttempt  = 4 * time.Second
	// A request for more than fewIDs has lastAttempt at once. A generator finishes what it has
	// accepted even if the caller has left, so retries of large requests would slow it down more and more.
	fewIDs = 1000
	// Pauses between attempts, if the answer has no hint of its own.
	firstRetryPause = 20 * time.Millisecond
	lastRetryPause  = time.Second
)

// Client asks generators over a connection that stays the caller's. Its methods are safe for
// concurrent use.
type Client struct {
	nc      *nats.Conn
	js      jetstream.JetStream // nil: the one of nc's account
	timeout time.Duration
	first   time.Duration // how long the first attempt at a request may take
	probing sync.Mutex    // held by the one request that probes its permissions

	tagGroups, flakeGroups groups // of Next
}

// Option changes how a [Client] works.
type Option func(*Client)

// DefaultTimeout is the [Timeout] of a client without that option.
const DefaultTimeout = 5 * time.Second

// Timeout bounds a call whose context has no deadline. 0 or less: such a call has no bound.
func Timeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// JetStream is where the events are, on the client's connection. Use it if they are in a JetStream
// domain. Default: the account's own JetStream.
func JetStream(js jetstream.JetStream) Option { return func(c *Client) { c.js = js } }

// NewClient returns a client on nc.
func NewClient(nc *nats.Conn, opts ...Option) *Client {
	c := &Client{nc: nc, timeout: DefaultTimeout, first: firstAttempt}
	for _, o := range opts {
		o(c)
	}
	return c
}

// Take returns n IDs of tag with one request: exactly n, in as few ranges as possible, or an error. n is
// from 1 to the generators' --max-batch.
//
// Take retries what may pass until the context is done: no generator, one that drains or is
// overloaded, an unavailable store, no answer. The pause between attempts grows to a second. An
// attempt with a lost answer leaves a gap.
//
// Errors match the [Reason] that a generator gave, or are those of NATS: [nats.ErrNoResponders] if
// there is no generator, [nats.ErrPermissionViolation] if the user may not ask. If the context ended
// the call, the error also matches the context's error.
func (c *Client) Take(ctx context.Context, tag string, n int64) ([]Range, error) {
	s, err := c.tag(tag)
	if err != nil {
		return nil, err
	}
	return c.takeOnce(ctx, s, n)
}

// Snowflakes returns n snowflakes in increasing order, as Take returns the IDs of a tag.
func (c *Client) Snowflakes(ctx context.Context, n int64) ([]Range, error) {
	return c.takeOnce(ctx, c.snowflakes(), n)
}

func (c *Client) takeOnce(ctx context.Context, s *source, n int64) ([]Range, error) {
	if err := checkCount(n); err != nil {
		return nil, err
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	ranges, _, err := s.take(ctx, n)
	return ranges, err
}

// checkCount returns an error if no generator can give n IDs.
func checkCount(n int64) error {
	if n < 1 {
		return badRequest("the request is for %d IDs: want at least 1", n)
	}
	return nil
}

// tag returns a tag as a source.
func (c *Client) tag(tag string) (*source, error) {
	if err := allocator.CheckTag(tag); err != nil {
		return nil, &Error{Code: 400, Reason: BadTag, Message: err.Error()}
	}
	return &source{c: c, subject: SubjectSegment + "." + tag}, nil
}

// snowflakes returns the snowflakes as a source.
func (c *Client) snowflakes() *source { return &source{c: c, subject: SubjectSnowflake} }

// bound adds the client's timeout to a context without a deadline.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || c.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout)
}

// request sends a request, and retries it where that may help, until the context is done. The first
// attempt may last for limit. failed gets the error of each attempt that adds something. request
// returns the answer and when its attempt began, or the error that the answer carries.
func (c *Client) request(
	ctx context.Context, limit time.Duration, subject string, body []byte, failed func(error),
) (msg *nats.Msg, asked time.Time, err error) {
	var why error
	for pause := firstRetryPause; ; pause = min(2*pause, lastRetryPause) {
		asked = time.Now()
		msg, err = c.attempt(ctx, limit, subject, body, "")
		if err == nil {
			return msg, asked, nil
		}
		if ctx.Err() == nil && !retryable(err) {
			failed(err)
			return nil, asked, err
		}
		if why == nil || !timedOut(err) { // a timeout says less than the error before it
			why = err
			failed(why)
		}
		if timedOut(err) {
			limit = min(2*limit, max(limit, lastAttempt))
		}
		wait := pause
		if e, ok := errors.AsType[*Error](err); ok {
			// At most a second: another generator may be able to answer sooner.
			wait = max(wait, min(e.RetryAfter, lastRetryPause))
		}
		select {
		case <-ctx.Done():
			return nil, asked, gaveUp(ctx, why)
		case <-time.After(wait + rand.N(wait/2)): // callers that were refused together must not return together
		}
	}
}

// attempt sends a request once and waits for its answer, for at most limit or, if that is 0, until
// the context is done. patience is the header [wire.HeaderTimeout]; empty: none.
func (c *Client) attempt(
	ctx context.Context, limit time.Duration, subject string, body []byte, patience string,
) (*nats.Msg, error) {
	if err := c.checkSize(subject, body); err != nil {
		return nil, err
	}
	if c.nc.Status() == nats.RECONNECTING {
		// nats.go would send it after the reconnect, when nobody waits for the answer any more.
		return nil, fmt.Errorf("the connection to NATS is lost: %w", nats.ErrConnectionReconnecting)
	}
	ctx, stop := c.watched(ctx, limit, subject)
	defer stop()
	var msg *nats.Msg
	var err error
	if patience == "" {
		msg, err = c.nc.RequestWithContext(ctx, subject, body)
	} else {
		header := nats.Header{wire.HeaderTimeout: {patience}}
		msg, err = c.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Data: body, Header: header})
	}
	if err == nil {
		return msg, ReplyError(msg)
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, nats.ErrPermissionViolation):
		return nil, cause
	case errors.Is(cause, context.DeadlineExceeded): // also that of the attempt alone
		err = cause
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("no generator answers %s: is one running on this NATS? %w", subject, err)
	case timedOut(err):
		return nil, fmt.Errorf("no answer on %s in time: the generator is slow, cannot be reached, "+
			"or waits for its store (`leaf nodes` shows it): %w", subject, err)
	}
	return nil, err
}

// maxControlLine is the default limit of a line in the NATS protocol, in bytes. A server closes the
// connection on a longer line. sizeOfInbox is what nats.go adds to the prefix of an inbox, and
// lineOverhead is the rest of the line.
const (
	maxControlLine = 4096
	sizeOfInbox    = 64
	lineOverhead   = 64
)

// checkSize returns an error if the server would not accept the request.
func (c *Client) checkSize(subject string, body []byte) error {
	if n := len(subject) + len(c.nc.Opts.InboxPrefix) + sizeOfInbox + lineOverhead; n > maxControlLine {
		return badRequest("the subject and the inbox of its answer are too long: NATS takes %d bytes", maxControlLine)
	}
	if most := c.nc.MaxPayload(); most > 0 && int64(len(body)) > most {
		return fmt.Errorf("the request has %d bytes, this NATS takes %d: %w", len(body), most, nats.ErrMaxPayload)
	}
	return nil
}

// timedOut reports whether err only says that a wait ended.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrTimeout)
}

// gaveUp returns the error of a call that the context ended: why, and it matches the context's error.
func gaveUp(ctx context.Context, why error) error {
	for _, end := range []error{ctx.Err(), context.Cause(ctx)} {
		if end != nil && !errors.Is(why, end) {
			why = fmt.Errorf("%w (%w)", why, end)
		}
	}
	return why
}

// retryable reports whether another attempt may succeed.
func retryable(err error) bool {
	for _, e := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, context.DeadlineExceeded,
		nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
		Draining, Overloaded, StoreUnavailable, TimedOut, ClockBackwards, NoWorkerID,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	_, network := errors.AsType[*net.OpError](err) // a write failed because the connection ended
	return network
}

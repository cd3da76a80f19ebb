package bus

import (
	"context"
	"errors"
	"net"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

// fewIDs is how many IDs a request is for that is as fast as one for a single ID.
const fewIDs = 1000

// Client asks generators over a connection of the caller. [NewClient] returns one. Its methods are
// safe for concurrent use.
type Client struct {
	x       *exchange
	timeout time.Duration
	onCall  func(Call) // nil: none

	tagGroups, flakeGroups groups // of Next

	owned []*nats.Conn // by Connect
}

// Option changes how a [Client] works.
type Option func(*Client)

// Timeout bounds a call whose context has no deadline. Default: 5 s. 0 or less: such a call has no
// bound.
func Timeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// NoHedging makes a client send a request again only after a refusal, or after a fifth of the time
// that is left.
//
// Default: an answer is late if it takes longer than 999 of 1,000 answers before it, and longer
// than 10 ms. Then the client sends the request again, and after that in the same intervals, at
// most 8 times. It uses the first answer. The IDs of the others are gaps: nobody gets them. A
// request that is sent again because its answer is late is called a hedge. If a generator is
// killed, frozen or cut off, its callers usually wait for one or two of these intervals. While
// generators answer, at most one request in a hundred is a hedge. If they do not, there is at most
// one hedge for each two calls of the last second, and a hundred. [Client.Stats] counts hedges.
func NoHedging() Option { return func(c *Client) { c.x.hedging = false } }

// OnCall makes a client call f after each call that sent a request: for metrics and traces. Callers
// of [Client.Next] that share a request are one call. f must not wait. It is called by many
// goroutines at a time.
func OnCall(f func(Call)) Option { return func(c *Client) { c.onCall = f } }

// Call is a call that has ended.
type Call struct {
	Subject string        // such as leaf.segment.order
	IDs     int64         // how many were asked for; 0: it was another request
	Took    time.Duration // until the answer or the error
	Err     error         // nil: it was answered
}

// Stats counts the requests of a [Client] since it was made.
type Stats struct {
	Requests int64 // calls that sent a request. Calls of Next that share one count once
	Hedges   int64 // requests that were sent again because the answer was late; see [NoHedging]
	Retries  int64 // requests that were sent again after a refusal, or after a fifth of the time that was left
}

// Stats returns what the client sent so far.
func (c *Client) Stats() Stats {
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	return c.x.stats
}

// NewClient returns a client on nc. Make one connection and one client in a process, and share
// them: a connection for each caller halves the rate. The client has one subscription, on which all
// answers arrive. Close nc after use.
//
// What the client does by default, and the options that change that:
//   - [Timeout]: a call whose context has no deadline ends after 5 s.
//   - [NoHedging]: if an answer is late, the client sends the request again (a hedge).
//
// [Client.Pool] and [Client.Ranges] have options of their own: [PoolOption] and [BulkOption].
func NewClient(nc *nats.Conn, opts ...Option) *Client { return newClient(opts, nc) }

func newClient(opts []Option, conns ...*nats.Conn) *Client {
	c := &Client{timeout: wire.DefaultTimeout, x: newExchange()}
	for i, nc := range conns {
		c.x.lines = append(c.x.lines, &line{nc: nc, x: c.x, number: i})
	}
	for _, o := range opts {
		o(c)
	}
	runtime.AddCleanup(c, (*exchange).close, c.x)
	return c
}

// ask makes a request.
func (c *Client) ask(ctx context.Context, r request) (*nats.Msg, error) {
	if c.onCall == nil {
		return c.x.ask(ctx, c.timeout, r)
	}
	began := time.Now()
	msg, err := c.x.ask(ctx, c.timeout, r)
	c.onCall(Call{Subject: r.subject, IDs: r.count, Took: time.Since(began), Err: err})
	return msg, err
}

// Take returns n IDs of tag with one request: exactly n, in as few ranges as possible, or an error.
// n is from 1 to the generators' --max-batch.
//
// Take retries failures that may pass, until the context is done: no generator, one that drains or
// is overloaded, an unavailable store, no answer. The pause after a refusal grows to a second. A
// request without an answer is sent again while its answer is late, see [NoHedging], and after each
// fifth of the time that the caller has, at most 4 s. Answers that are not used leave gaps: nobody
// gets their IDs.
//
// Each ID of an opaque tag is a range of its own. An answer lists them all, so n is bounded by what
// fits into a message; [Client.Ranges] divides more.
//
// The IDs of a strict tag are one range. They are above all IDs that any caller had before Take was
// called.
//
// Errors match the [Reason] that a generator gave, or are those of NATS: [nats.ErrNoResponders] if
// there is no generator, [nats.ErrPermissionViolation] if the user may not ask. NATS does not
// answer such a request, so that error comes when the time is over. If the context ended the call,
// the error also matches the context's error.
func (c *Client) Take(ctx context.Context, tag string, n int64) ([]Range, error) {
	subject, err := tagSubject(tag)
	if err != nil {
		return nil, err
	}
	return c.takeOnce(ctx, subject, n)
}

// Snowflakes returns n snowflakes in increasing order, as Take returns the IDs of a tag.
func (c *Client) Snowflakes(ctx context.Context, n int64) ([]Range, error) {
	return c.takeOnce(ctx, wire.SubjectSnowflake, n)
}

func (c *Client) takeOnce(ctx context.Context, subject string, n int64) ([]Range, error) {
	if err := checkCount(n); err != nil {
		return nil, err
	}
	s := source{c: c, subject: subject} // it needs no memory of its own
	return s.take(ctx, n, request{})
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
	subject, err := tagSubject(tag)
	if err != nil {
		return nil, err
	}
	return &source{c: c, subject: subject}, nil
}

func tagSubject(tag string) (string, error) {
	if err := idspace.CheckTag(tag); err != nil {
		return "", &Error{Code: 400, Reason: BadTag, Message: err.Error()}
	}
	return wire.SubjectSegment + "." + tag, nil
}

// snowflakes returns the snowflakes as a source.
func (c *Client) snowflakes() *source { return &source{c: c, subject: wire.SubjectSnowflake} }

// timedOut reports whether err only says that a wait ended.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrTimeout)
}

// retryable reports whether another attempt may succeed.
func retryable(err error) bool {
	for _, e := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, context.DeadlineExceeded,
		nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
		Draining, Overloaded, QuotaExceeded, StoreUnavailable, TimedOut, ClockBackwards, NoWorkerID,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	_, network := errors.AsType[*net.OpError](err) // a write failed because the connection ended
	return network
}

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// firstAttempt bounds the first attempt at a request: an answer that was lost is to
	// be missed soon. Each that is not answered lets the next one last twice as long, up
	// to lastAttempt, which is longer than a generator lets a request wait by default.
	firstAttempt = time.Second
	lastAttempt  = 4 * time.Second
	// A request for more than fewIDs has lastAttempt at once: generators work off what
	// they have accepted also when the caller has left, and asking again for much
	// that is on its way would make them slower and slower.
	fewIDs = 1000
	// Pauses between attempts where the answer has no hint of its own.
	firstRetryPause = 20 * time.Millisecond
	lastRetryPause  = time.Second
)

// Client asks generators over a connection that stays the caller's. Its
// methods are safe for concurrent use.
type Client struct {
	nc      *nats.Conn
	js      jetstream.JetStream // nil: that of nc
	timeout time.Duration
	first   time.Duration // how long the first attempt at a request may take
	probing sync.Mutex    // held by the one request that probes its permissions

	tagGroups, flakeGroups groups // of Next
}

// Option changes how a [Client] works.
type Option func(*Client)

// DefaultTimeout is the [Timeout] of a client that is given none.
const DefaultTimeout = 5 * time.Second

// Timeout bounds a call whose context has no deadline; 0 or less: nothing does.
func Timeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// JetStream is where the events are kept, on the client's connection: for a NATS where that
// is in a domain of its own. Default: the account's own JetStream.
func JetStream(js jetstream.JetStream) Option { return func(c *Client) { c.js = js } }

// NewClient returns a client on nc.
func NewClient(nc *nats.Conn, opts ...Option) *Client {
	c := &Client{nc: nc, timeout: DefaultTimeout, first: firstAttempt}
	for _, o := range opts {
		o(c)
	}
	return c
}

// Take returns n IDs of tag, from 1 to the generators' --max-batch, in as few ranges as possible, all or none, with one
// request. What another attempt may cure (no generator, one that drains or is overloaded,
// a store that is away, no answer) is tried again, after a pause that grows to a second,
// until the context is done. An attempt whose answer was lost leaves a gap.
//
// Errors match the [Reason] that a generator gave, or are those of NATS: [nats.ErrNoResponders]
// where no generator is, [nats.ErrPermissionViolation] where the user may not ask. One
// that ended with the context matches also the context's.
func (c *Client) Take(ctx context.Context, tag string, n int64) ([]Range, error) {
	s, err := c.tag(tag)
	if err != nil {
		return nil, err
	}
	return c.takeOnce(ctx, s, n)
}

// Snowflakes returns n snowflakes in increasing order, all or none, as Take
// does the IDs of a tag.
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

// checkCount refuses what no generator can give.
func checkCount(n int64) error {
	if n < 1 {
		return badRequest("%d IDs were asked for: want at least 1", n)
	}
	return nil
}

// tag is a tag as a source.
func (c *Client) tag(tag string) (*source, error) {
	if err := allocator.CheckTag(tag); err != nil {
		return nil, &Error{Code: 400, Reason: BadTag, Message: err.Error()}
	}
	return &source{c: c, subject: SubjectSegment + "." + tag}, nil
}

// snowflakes are the snowflakes as a source.
func (c *Client) snowflakes() *source { return &source{c: c, subject: SubjectSnowflake} }

// bound gives a deadline to a context that has none.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || c.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout)
}

// request sends a request, again where that may help, until the context is done. The first
// attempt may last for limit. It tells failed of each attempt that has, and returns the answer and when it was asked
// for, or the error that the answer carries.
func (c *Client) request(ctx context.Context, limit time.Duration, subject string, body []byte, failed func(error)) (msg *nats.Msg, asked time.Time, err error) {
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
		if why == nil || !timedOut(err) { // a wait that ended says less than what was said before
			why = err
			failed(why)
		}
		if timedOut(err) {
			limit = min(2*limit, max(limit, lastAttempt))
		}
		wait := pause
		if e, ok := errors.AsType[*Error](err); ok {
			// A generator cannot know that another can answer before.
			wait = max(wait, min(e.RetryAfter, lastRetryPause))
		}
		select {
		case <-ctx.Done():
			return nil, asked, gaveUp(ctx, why)
		case <-time.After(wait + rand.N(wait/2)): // so that those refused together do not come back together
		}
	}
}

// attempt sends a request once, and waits for its answer for at most limit; 0: until the
// context is done. patience is the header [wire.HeaderTimeout]; empty: none is sent.
func (c *Client) attempt(ctx context.Context, limit time.Duration, subject string, body []byte, patience string) (*nats.Msg, error) {
	if err := c.checkSize(subject, body); err != nil {
		return nil, err
	}
	if c.nc.Status() == nats.RECONNECTING {
		// It would be sent when NATS is back, and answered for nobody.
		return nil, fmt.Errorf("the connection to NATS is lost: %w", nats.ErrConnectionReconnecting)
	}
	ctx, stop := c.watched(ctx, limit, subject)
	defer stop()
	var msg *nats.Msg
	var err error
	if patience == "" {
		msg, err = c.nc.RequestWithContext(ctx, subject, body)
	} else {
		msg, err = c.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Data: body, Header: nats.Header{wire.HeaderTimeout: {patience}}})
	}
	if err == nil {
		return msg, ReplyError(msg)
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, nats.ErrPermissionViolation):
		return nil, cause
	case errors.Is(cause, context.DeadlineExceeded): // the attempt's, if it is not the caller's
		err = cause
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("no generator answers %s: is one running on this NATS? %w", subject, err)
	case timedOut(err):
		return nil, fmt.Errorf("no answer on %s in time: the generator is slow, out of reach, or waits for its store (`leaf nodes` shows it): %w", subject, err)
	}
	return nil, err
}

// maxControlLine is the longest line of NATS' protocol by default, in bytes; a
// server closes the connection of who sends a longer one. sizeOfInbox is what nats.go adds to
// the prefix of an inbox, and lineOverhead what else is on the line.
const (
	maxControlLine = 4096
	sizeOfInbox    = 64
	lineOverhead   = 64
)

// checkSize refuses what the server would not take.
func (c *Client) checkSize(subject string, body []byte) error {
	if n := len(subject) + len(c.nc.Opts.InboxPrefix) + sizeOfInbox + lineOverhead; n > maxControlLine {
		return badRequest("the subject and the inbox for its answer are too long for NATS, which takes %d bytes", maxControlLine)
	}
	if most := c.nc.MaxPayload(); most > 0 && int64(len(body)) > most {
		return fmt.Errorf("the request has %d bytes, this NATS takes %d: %w", len(body), most, nats.ErrMaxPayload)
	}
	return nil
}

// timedOut reports whether err says only that a wait has ended.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrTimeout)
}

// gaveUp is the error of whoever gave up when the context was done: it matches
// the context's, and says why.
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
	_, network := errors.AsType[*net.OpError](err) // a write that met the end of a connection
	return network
}

// Decode takes a snowflake apart.
func (c *Client) Decode(ctx context.Context, id int64) (Decoded, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var d Decoded
	msg, _, err := c.request(ctx, c.first, SubjectDecode, strconv.AppendInt(nil, id, 10), func(error) {})
	if err != nil {
		return d, err
	}
	return d, unmarshal(msg, SubjectDecode, &d)
}

// Workers returns a page of the workers and who holds them. [NoWorkerID]: the
// registry of workers cannot be asked.
func (c *Client) Workers(ctx context.Context, req WorkersRequest) (WorkersPage, error) {
	return call[WorkersPage](ctx, c, SubjectWorkersList, req)
}

// ReleaseWorker gives a worker free whose holder is stopped, and returns its
// record, which says from when on another may take it; [snowflake.Release] says
// what uniqueness then rests on. One that is free already it leaves as it is.
// [Conflict]: a generator is running that holds it or may, or the record
// is not as the request says any more. After an error that is not an [Error], or
// one that says so, the release may have happened: look with Workers.
func (c *Client) ReleaseWorker(ctx context.Context, req WorkerRelease) (Worker, error) {
	return call[Worker](ctx, c, SubjectWorkersRelease, req)
}

// call makes an administrative request, once: a person should check whether an
// unconfirmed change happened. The request says how long call waits, so that no generator
// carries it out later.
func call[Resp any](ctx context.Context, c *Client, subject string, req any) (Resp, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var resp Resp
	msg, err := c.attempt(ctx, 0, subject, wire.Encode(req), tellPatience(ctx))
	if err != nil {
		return resp, err
	}
	return resp, unmarshal(msg, subject, &resp)
}

func unmarshal(msg *nats.Msg, subject string, v any) error {
	if err := json.Unmarshal(msg.Data, v); err != nil {
		return fmt.Errorf("the answer on %s cannot be read: %w", subject, err)
	}
	return nil
}

// Tags returns a page of the tags.
func (c *Client) Tags(ctx context.Context, req PageRequest) (TagsPage, error) {
	return call[TagsPage](ctx, c, SubjectTagsList, req)
}

// Tag returns a tag's record. [UnknownTag]: there is none.
func (c *Client) Tag(ctx context.Context, tag string) (TagRecord, error) {
	return call[TagRecord](ctx, c, SubjectTagsGet, tagName{tag})
}

// CreateTag adds a tag and returns its record. [Exists]: there is one.
// [BadTag], [BadRequest]: there cannot be such a one. After an error of the
// [Reason] [TimedOut], or one that is no [Error], it may have happened: the same
// request can be made again.
func (c *Client) CreateTag(ctx context.Context, req TagCreate) (TagChange, error) {
	return call[TagChange](ctx, c, SubjectTagsCreate, req)
}

// UpdateTag changes a tag and returns its record. When it returns, a new max_id
// is in force at every generator that is heard; it names the others. [UnknownTag]: there is none. [Conflict]: max_id
// would move backwards. After an error of the [Reason] [TimedOut], or one that is
// no [Error], it may have happened: the same change can be made again.
func (c *Client) UpdateTag(ctx context.Context, req TagUpdate) (TagChange, error) {
	return call[TagChange](ctx, c, SubjectTagsUpdate, req)
}

// DeleteTag removes a tag and returns its last record. Its IDs are not handed
// out again, also when a tag of that name is created later. After an error of
// the [Reason] [TimedOut] it may be deleted, and generators that the error names may
// serve it until they hear of it: the same request can be made again. [UnknownTag]: there is none.
func (c *Client) DeleteTag(ctx context.Context, tag string) (TagChange, error) {
	return call[TagChange](ctx, c, SubjectTagsDelete, tagName{tag})
}

// tellPatience returns the header of a request that waits until the context is done; empty:
// the context has no deadline.
func tellPatience(ctx context.Context) string {
	end, ok := ctx.Deadline()
	if !ok {
		return ""
	}
	return strconv.FormatInt(max(0, min(time.Until(end), wire.MaxAdminTimeout)).Milliseconds(), 10)
}

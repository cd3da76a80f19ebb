package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
)

const (
	// attemptTimeout bounds one request: longer than a generator lets it wait
	// by default.
	attemptTimeout = 4 * time.Second
	// Pauses between attempts where the answer has no hint of its own.
	firstRetryPause = 20 * time.Millisecond
	lastRetryPause  = time.Second
)

// Client asks generators over a connection that stays the caller's. Its
// methods are safe for concurrent use.
type Client struct{ nc *nats.Conn }

// NewClient returns a client on nc.
func NewClient(nc *nats.Conn) *Client { return &Client{nc} }

// Take returns n IDs of tag, in as few ranges as possible, all or none. What
// another attempt may cure (no generator, an overloaded one, a store that is
// away, no answer) is tried again until the context is done, so give it a
// deadline. An attempt whose answer was lost leaves a gap.
//
// Errors match the [Reason] that the generator gave, or are those of NATS.
func (c *Client) Take(ctx context.Context, tag string, n int64) ([]Range, error) {
	if err := allocator.CheckTag(tag); err != nil {
		return nil, toError(err)
	}
	return c.take(ctx, SubjectSegment+"."+tag, n)
}

// Snowflakes returns n snowflakes in increasing order, all or none, as Take
// does the IDs of a tag.
func (c *Client) Snowflakes(ctx context.Context, n int64) ([]Range, error) {
	return c.take(ctx, SubjectSnowflake, n)
}

func (c *Client) take(ctx context.Context, subject string, n int64) ([]Range, error) {
	msg, err := c.request(ctx, subject, strconv.AppendInt(nil, n, 10), true)
	if err != nil {
		return nil, err
	}
	ranges, err := ParseReply(msg.Data)
	if err == nil && total(ranges) != n {
		err = fmt.Errorf("%d IDs came for %d asked for", total(ranges), n)
	}
	return ranges, err
}

// request sends a request and returns its answer, or the error that it carries.
func (c *Client) request(ctx context.Context, subject string, body []byte, again bool) (*nats.Msg, error) {
	var said error // the last that a generator said
	for pause := firstRetryPause; ; pause = min(2*pause, lastRetryPause) {
		msg, err := c.attempt(ctx, subject, body)
		if err == nil {
			return msg, nil
		}
		wait := pause
		if e, ok := errors.AsType[*Error](err); ok {
			said = err
			// A generator cannot know that another can answer before.
			wait = max(wait, min(e.RetryAfter, lastRetryPause))
		}
		if !again || !retryable(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, cmp.Or(said, err) // says more than the context's
		case <-time.After(wait):
		}
	}
}

func (c *Client) attempt(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	msg, err := c.nc.RequestWithContext(ctx, subject, body)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("no generator answers %s: is one running on this NATS? %w", subject, err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer on %s in time: %w", subject, err)
	case err != nil:
		return nil, err
	}
	return msg, replyError(msg)
}

// retryable reports whether another attempt may succeed.
func retryable(err error) bool {
	for _, e := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, context.DeadlineExceeded, nats.ErrDisconnected,
		Draining, Overloaded, StoreUnavailable, TimedOut, ClockBackwards, NoWorkerID,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Decode takes a snowflake apart.
func (c *Client) Decode(ctx context.Context, id int64) (Decoded, error) {
	var d Decoded
	msg, err := c.request(ctx, SubjectDecode, strconv.AppendInt(nil, id, 10), true)
	if err != nil {
		return d, err
	}
	return d, unmarshal(msg, SubjectDecode, &d)
}

// Workers returns a page of the workers and who holds them.
func (c *Client) Workers(ctx context.Context, req WorkersRequest) (WorkersPage, error) {
	return call[WorkersPage](ctx, c, SubjectWorkersList, req)
}

// ReleaseWorker gives a worker free whose holder is stopped, and returns its
// record, which says from when on another may take it; [snowflake.Release] says
// what uniqueness then rests on. One that is free already it leaves as it is. It
// matches [Conflict] if a generator is running that holds it or may, or the record
// is not as the request says any more. Of any error that is not an [Error],
// and of one that says so, look whether it happened.
func (c *Client) ReleaseWorker(ctx context.Context, req WorkerRelease) (Worker, error) {
	return call[Worker](ctx, c, SubjectWorkersRelease, req)
}

// call makes an administrative request. It is not repeated: whether a change
// happened that was not confirmed, a person should look.
func call[Resp any](ctx context.Context, c *Client, subject string, req any) (Resp, error) {
	var resp Resp
	msg, err := c.request(ctx, subject, encode(req), false)
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

// Tag returns a tag's record.
func (c *Client) Tag(ctx context.Context, tag string) (TagRecord, error) {
	return call[TagRecord](ctx, c, SubjectTagsGet, tagName{tag})
}

// CreateTag adds a tag and returns its record.
func (c *Client) CreateTag(ctx context.Context, req TagCreate) (TagRecord, error) {
	return call[TagRecord](ctx, c, SubjectTagsCreate, req)
}

// UpdateTag changes a tag and returns its record. When it returns, a new max_id
// is in force at every generator.
func (c *Client) UpdateTag(ctx context.Context, req TagUpdate) (TagRecord, error) {
	return call[TagRecord](ctx, c, SubjectTagsUpdate, req)
}

// DeleteTag removes a tag and returns its last record. Its IDs are not handed
// out again, also when a tag of that name is created later.
func (c *Client) DeleteTag(ctx context.Context, tag string) (TagRecord, error) {
	return call[TagRecord](ctx, c, SubjectTagsDelete, tagName{tag})
}

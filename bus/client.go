package bus

import (
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
	msg, err := c.request(ctx, SubjectSegment+"."+tag, strconv.AppendInt(nil, n, 10), true)
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
	for pause := firstRetryPause; ; pause = min(2*pause, lastRetryPause) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		msg, err := c.nc.RequestWithContext(attempt, subject, body)
		cancel()
		if err == nil {
			err = replyError(msg)
		}
		if err == nil {
			return msg, nil
		}
		if errors.Is(err, nats.ErrNoResponders) {
			err = fmt.Errorf("no generator answers %s: is one running on this NATS? %w", subject, err)
		}
		if !again || !retryable(err) {
			return nil, err
		}
		wait := pause
		if e, ok := errors.AsType[*Error](err); ok && e.RetryAfter > 0 {
			wait = e.RetryAfter
		}
		select {
		case <-ctx.Done():
			return nil, err // says more than the context's
		case <-time.After(wait):
		}
	}
}

// retryable reports whether another attempt may succeed.
func retryable(err error) bool {
	for _, e := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, context.DeadlineExceeded, nats.ErrDisconnected,
		Draining, Overloaded, StoreUnavailable, TimedOut,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// call makes an administrative request. It is not repeated: whether a change
// happened that was not confirmed, a person should look.
func call[Resp any](ctx context.Context, c *Client, subject string, req any) (Resp, error) {
	var resp Resp
	msg, err := c.request(ctx, subject, encode(req), false)
	if err != nil {
		return resp, err
	}
	if err := json.Unmarshal(msg.Data, &resp); err != nil {
		return resp, fmt.Errorf("the answer on %s cannot be read: %w", subject, err)
	}
	return resp, nil
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

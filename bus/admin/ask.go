package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

// drainingPause is how long call waits after an answer that nothing was done.
const drainingPause = 100 * time.Millisecond

// call makes an administrative request. It repeats one only while generators answer [bus.Draining]:
// nothing was done, and another generator may do it. After any other error a person should check
// whether the change happened.
func call[Resp any](ctx context.Context, c *Client, subject string, req any) (resp Resp, err error) {
	ctx, cancel := wire.Bound(ctx, c.timeout)
	defer cancel()
	for {
		resp, err = once[Resp](ctx, c, subject, req)
		if refused, ok := errors.AsType[*bus.Error](err); !ok || refused.Reason != bus.Draining {
			return resp, err
		}
		select {
		case <-time.After(drainingPause):
		case <-ctx.Done():
			return resp, err
		}
	}
}

// once makes a request once. The request says how long once waits, so that no generator carries it
// out later.
func once[Resp any](ctx context.Context, c *Client, subject string, req any) (resp Resp, err error) {
	msg := &nats.Msg{Subject: subject, Data: wire.Encode(req)}
	if end, ok := ctx.Deadline(); ok {
		wait := max(0, min(time.Until(end), wire.MaxAdminTimeout))
		msg.Header = nats.Header{wire.HeaderTimeout: {strconv.FormatInt(wait.Milliseconds(), 10)}}
	}
	if most := c.nc.MaxPayload(); most > 0 && int64(len(msg.Data)) > most {
		return resp, fmt.Errorf("the request has %d bytes, this NATS takes %d: %w", len(msg.Data), most, nats.ErrMaxPayload)
	}
	answer, err := wire.AskOne(ctx, c.nc, msg)
	if err == nil {
		err = bus.ReplyError(answer)
	}
	if err != nil {
		return resp, err
	}
	return resp, unmarshal(answer, subject, &resp)
}

func unmarshal(msg *nats.Msg, subject string, v any) error {
	if err := json.Unmarshal(msg.Data, v); err != nil {
		return fmt.Errorf("the answer on %s cannot be read: %w", subject, err)
	}
	return nil
}

// callAll makes a request that every generator answers. It returns the answers that came, and joins
// the errors of those that are errors or cannot be read.
func callAll[Page any](ctx context.Context, c *Client, subject string, req any) ([]Page, error) {
	ctx, cancel := wire.Bound(ctx, c.timeout)
	defer cancel()
	var pages []Page
	var problems []error
	err := wire.AskAll(ctx, c.nc, subject, wire.Encode(req), func(msg *nats.Msg) error {
		var page Page
		err := bus.ReplyError(msg)
		if err == nil {
			err = unmarshal(msg, subject, &page)
		}
		if err != nil {
			problems = append(problems, err)
			return nil
		}
		pages = append(pages, page)
		return nil
	})
	return pages, errors.Join(append(problems, err)...)
}

package generator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// maxAdmin is how many administrative requests are worked on at a time.
const maxAdmin = 64

// endpoint is the one edge of the administrative requests: decode, call, map
// the error, encode. f runs outside the callback, because stores take their
// time. Its context ends before the sender gives up.
func endpoint[Req, Resp any](g *Generator, f func(context.Context, Req) (Resp, error)) micro.Handler {
	return bounded(g, f, func(time.Time) time.Duration { return 0 })
}

// change is endpoint for requests that change something. It refuses a request if its sender
// may have given up.
func change[Req, Resp any](g *Generator, f func(context.Context, Req) (Resp, error)) micro.Handler {
	return bounded(g, f, g.group.pulse.age)
}

// bounded is endpoint for requests of this age.
func bounded[Req, Resp any](g *Generator, f func(context.Context, Req) (Resp, error), age func(time.Time) time.Duration) micro.Handler {
	return micro.HandlerFunc(func(r micro.Request) {
		reply, data := r.Reply(), r.Data()
		if reply == "" {
			return
		}
		a := g.answer(AdminKind, NATS)
		now := time.Now()
		patience, err := readPatience(r.Headers().Get(wire.HeaderTimeout))
		end := now.Add(patience - age(now) - answerTime(patience))
		if err == nil && !end.After(now) {
			err = g.late()
		}
		if err != nil {
			g.refuse(reply, a, err)
			return
		}
		select {
		case g.adminSlots <- struct{}{}:
		default:
			g.refuse(reply, a, fmt.Errorf("%w: %d administrative requests are being worked on", allocator.ErrOverloaded, maxAdmin))
			return
		}
		started := g.requests.start(func() {
			defer func() { <-g.adminSlots }()
			ctx, cancel := context.WithDeadline(g.life, end)
			defer cancel()
			req, err := decode[Req](data)
			var resp Resp
			if err == nil {
				err = g.inTime(ctx)
			}
			if err == nil {
				resp, err = f(ctx, req)
			}
			if err != nil {
				g.refuse(reply, a, storeError(err))
				return
			}
			g.respond(reply, wire.Encode(resp))
			g.served(a, 0)
		})
		if !started {
			<-g.adminSlots
			g.refuse(reply, a, allocator.ErrClosed)
		}
	})
}

// storeError marks an error that is none of the allocator's as the store's.
func storeError(err error) error {
	if e := toError(err); e.Reason != bus.Internal {
		return e
	}
	return fmt.Errorf("%w: %w", allocator.ErrUnavailable, err)
}

// decode reads the JSON of an administrative request. An empty body is {}.
func decode[Req any](data []byte) (Req, error) {
	var req Req
	if data = bytes.TrimSpace(data); len(data) == 0 {
		return req, nil
	}
	if data[0] != '{' {
		return req, badRequest("the body is not a JSON object: %s", wire.Quote(data))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return req, badRequest("the body cannot be read: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return req, badRequest("there is something after the JSON object")
	}
	return req, nil
}

// maxAnswerTime is the most time that is kept for the way of the answer.
const maxAnswerTime = 250 * time.Millisecond

// readPatience returns how long a sender waits, from the header wire.HeaderTimeout.
func readPatience(header string) (time.Duration, error) {
	if header == "" {
		return bus.DefaultTimeout, nil
	}
	ms, err := strconv.ParseUint(header, 10, 32)
	if err != nil {
		return 0, badRequest("the header %s is %s, not a number of milliseconds", wire.HeaderTimeout, wire.Quote([]byte(header)))
	}
	return min(time.Duration(ms)*time.Millisecond, wire.MaxAdminTimeout), nil
}

// answerTime is how much of a sender's patience is kept for the way of the answer.
func answerTime(patience time.Duration) time.Duration { return min(patience/10, maxAnswerTime) }

// inTime returns an error if a change must not begin any more. It reads the clock, because a
// process that stood still may not have noticed yet that the context is done.
func (g *Generator) inTime(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return g.late()
	}
	return nil
}

// late is the error of a request that came so late that its sender may have given up.
func (g *Generator) late() error {
	return &bus.Error{Code: 503, Reason: bus.Draining, Message: fmt.Sprintf("generator %s stood still or was cut off when this came, "+
		"or the sender waits for too short a time: nothing was done, send it again", g.cfg.Node)}
}

package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// quiet is how long AskAll waits for another answer after the last one, because the number of
// generators is not known. So often both look at the connection.
const quiet = 500 * time.Millisecond

// AskAll sends one request to all generators that answer its subject, and calls f with each answer
// until no more come. It takes half a second longer than the last answer. It fails if the context
// ends before that, if f fails, or if the connection is lost meanwhile.
func AskAll(ctx context.Context, nc *nats.Conn, subject string, body []byte, f func(*nats.Msg) error) error {
	a, err := ask(ctx, nc, &nats.Msg{Subject: subject, Data: body})
	if err != nil {
		return err
	}
	defer a.answers.Unsubscribe()
	for {
		msg, err := a.next(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return ctx.Err()
		case err != nil:
			return err
		}
		if err := f(msg); err != nil {
			return fmt.Errorf("an answer on %s cannot be read: %w", subject, err)
		}
	}
}

// AskOne sends a request once, and returns the first answer. It fails soon if the connection is
// lost meanwhile.
func AskOne(ctx context.Context, nc *nats.Conn, request *nats.Msg) (*nats.Msg, error) {
	a, err := ask(ctx, nc, request)
	if err != nil {
		return nil, err
	}
	defer a.answers.Unsubscribe()
	for {
		msg, err := a.next(ctx)
		switch {
		case err == nil:
			return msg, nil
		case ctx.Err() != nil:
			return nil, GaveUp(ctx, Silent(request.Subject))
		case errors.Is(err, nats.ErrNoResponders):
			return nil, NoResponders(request.Subject)
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
	}
}

// Bound adds a timeout to a context without a deadline. 0 or less: none.
func Bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// asked is a request that was sent.
type asked struct {
	nc         *nats.Conn
	reconnects uint64 // before it was sent
	answers    *nats.Subscription
}

// ask sends a request.
func ask(ctx context.Context, nc *nats.Conn, request *nats.Msg) (asked, error) {
	a := asked{nc: nc, reconnects: nc.Stats().Reconnects}
	if err := Away(nc); err != nil {
		return a, err
	}
	before := nc.LastError()
	request.Reply = nc.NewInbox()
	var err error
	if a.answers, err = nc.SubscribeSync(request.Reply); err != nil {
		return a, err
	}
	if err = nc.PublishMsg(request); err == nil {
		// NATS answers in order: what it says of the request comes before its answer to the flush.
		// If none comes, neither does an answer to the request.
		flush, cancel := context.WithTimeout(ctx, DefaultTimeout)
		_ = nc.FlushWithContext(flush)
		cancel()
		published := PublishDenied(nc, before, func(s string) bool { return s == request.Subject })
		err = cmp.Or(InboxDenied(nc, before, request.Reply), published)
	}
	if err != nil {
		_ = a.answers.Unsubscribe()
	}
	return a, err
}

// next returns the next answer. The error is [context.DeadlineExceeded] if none comes soon. It is
// [nats.ErrDisconnected] if the connection was lost: nobody knows whether the request or its answer
// was lost.
func (a asked) next(ctx context.Context) (*nats.Msg, error) {
	soon, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	msg, err := a.answers.NextMsgWithContext(soon)
	lost := !a.nc.IsConnected() || a.nc.Stats().Reconnects != a.reconnects
	if lost && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = nats.ErrDisconnected
	}
	return msg, err
}

// Away returns an error while the connection is lost. nats.go would send a request after the
// reconnect, when nobody waits for the answer any more.
func Away(nc *nats.Conn) error {
	if nc.Status() != nats.RECONNECTING {
		return nil
	}
	return fmt.Errorf("the connection to NATS is lost: %w", nats.ErrConnectionReconnecting)
}

// NoResponders is the error of a request that no generator received.
func NoResponders(subject string) error {
	return fmt.Errorf("no generator answers %s: none runs on this NATS, or each gets more requests than it can answer: %w",
		subject, nats.ErrNoResponders)
}

// Silent is the error of a request that was not answered.
func Silent(subject string) error {
	return fmt.Errorf("no answer on %s in time: the generator is slow, cannot be reached, "+
		"or waits for its store (`leaf nodes` shows it): %w", subject, context.DeadlineExceeded)
}

// GaveUp returns the error of a call that the context ended: why, and it matches the context's
// error.
func GaveUp(ctx context.Context, why error) error {
	for _, end := range []error{ctx.Err(), context.Cause(ctx)} {
		if end != nil && !errors.Is(why, end) {
			why = fmt.Errorf("%w (%w)", why, end)
		}
	}
	return why
}

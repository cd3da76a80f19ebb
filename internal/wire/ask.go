package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// quiet is how long AskAll waits for another answer after the last one, because the number of generators is not known.
// So often AskOne looks at the connection.
const quiet = 500 * time.Millisecond

// AskAll sends one request to all generators that answer its subject, and calls f with each answer
// until no more come. It takes half a second longer than the last answer. It fails if the context
// ends before that, or if f fails.
func AskAll(ctx context.Context, nc *nats.Conn, subject string, body []byte, f func(*nats.Msg) error) error {
	answers, err := send(ctx, nc, &nats.Msg{Subject: subject, Data: body})
	if err != nil {
		return err
	}
	defer answers.Unsubscribe()
	for {
		msg, err := next(ctx, answers)
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

// AskOne sends a request once, and returns the first answer. If the connection is lost meanwhile, it ends soon: nobody
// knows whether the request or its answer was lost.
func AskOne(ctx context.Context, nc *nats.Conn, request *nats.Msg) (*nats.Msg, error) {
	before := nc.Stats().Reconnects
	answers, err := send(ctx, nc, request)
	if err != nil {
		return nil, err
	}
	defer answers.Unsubscribe()
	for {
		msg, err := next(ctx, answers)
		switch {
		case err == nil:
			return msg, nil
		case ctx.Err() != nil:
			return nil, GaveUp(ctx, Silent(request.Subject))
		case errors.Is(err, nats.ErrNoResponders):
			return nil, NoResponders(request.Subject)
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		case !nc.IsConnected() || nc.Stats().Reconnects != before:
			return nil, nats.ErrDisconnected
		}
	}
}

// send sends a request, and returns the subscription to its answers.
func send(ctx context.Context, nc *nats.Conn, request *nats.Msg) (*nats.Subscription, error) {
	if err := Away(nc); err != nil {
		return nil, err
	}
	before := nc.LastError()
	request.Reply = nc.NewInbox()
	answers, err := nc.SubscribeSync(request.Reply)
	if err != nil {
		return nil, err
	}
	if err = nc.PublishMsg(request); err == nil {
		// NATS answers in order: what it says of the request comes before its answer to the flush. If none comes, neither
		// does an answer to the request.
		flush, cancel := context.WithTimeout(ctx, DefaultTimeout)
		_ = nc.FlushWithContext(flush)
		cancel()
		published := PublishDenied(nc, before, func(s string) bool { return s == request.Subject })
		err = cmp.Or(InboxDenied(nc, before, request.Reply), published)
	}
	if err != nil {
		_ = answers.Unsubscribe()
	}
	return answers, err
}

// next returns the next answer. The error is [context.DeadlineExceeded] if none comes soon.
func next(ctx context.Context, answers *nats.Subscription) (*nats.Msg, error) {
	soon, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	return answers.NextMsgWithContext(soon)
}

// Away returns an error while the connection is lost. nats.go would send a request after the reconnect, when nobody
// waits for the answer any more.
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

// GaveUp returns the error of a call that the context ended: why, and it matches the context's error.
func GaveUp(ctx context.Context, why error) error {
	for _, end := range []error{ctx.Err(), context.Cause(ctx)} {
		if end != nil && !errors.Is(why, end) {
			why = fmt.Errorf("%w (%w)", why, end)
		}
	}
	return why
}

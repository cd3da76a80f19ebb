package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// quiet is how long AskAll waits for another answer after the last one, because
// the number of generators is not known.
const quiet = 500 * time.Millisecond

// AskAll sends one request to all generators that answer its subject, and calls f with each answer
// until no more come. It takes half a second longer than the last answer. It fails if the context
// ends before that, or if f fails.
func AskAll(ctx context.Context, nc *nats.Conn, subject string, body []byte, f func(*nats.Msg) error) error {
	if err := Away(nc); err != nil {
		return err
	}
	before := nc.LastError()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer answers.Unsubscribe()
	if err := nc.PublishRequest(subject, inbox, body); err != nil {
		return err
	}
	for {
		next, cancel := context.WithTimeout(ctx, quiet)
		msg, err := answers.NextMsgWithContext(next)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			published := PublishDenied(nc, before, func(s string) bool { return s == subject })
			return cmp.Or(InboxDenied(nc, before, inbox), published, ctx.Err())
		case err != nil:
			return err
		}
		if err := f(msg); err != nil {
			return fmt.Errorf("an answer on %s cannot be read: %w", subject, err)
		}
	}
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

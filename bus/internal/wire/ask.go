package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
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
	if nc.Status() == nats.RECONNECTING {
		return fmt.Errorf("the connection to NATS is lost: %w", nats.ErrConnectionReconnecting)
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

// PublishDenied returns an error if NATS denied a publication since the connection's last
// error was before. of selects the subjects of the caller's own publications.
func PublishDenied(nc *nats.Conn, before error, of func(subject string) bool) error {
	if subject, ok := violation(nc, before, "Publish to"); ok && of(subject) {
		return fmt.Errorf("this user of NATS may not publish to %s: %w", subject, nats.ErrPermissionViolation)
	}
	return nil
}

// SubscriptionDenied returns an error if NATS denied a subscription to subject since the
// connection's last error was before.
func SubscriptionDenied(nc *nats.Conn, before error, subject string) error {
	if denied, ok := violation(nc, before, "Subscription to"); ok && denied == subject {
		return fmt.Errorf("this user of NATS may not subscribe to %s: %w", subject, nats.ErrPermissionViolation)
	}
	return nil
}

// InboxDenied is SubscriptionDenied for the subject on which answers arrive.
func InboxDenied(nc *nats.Conn, before error, inbox string) error {
	if err := SubscriptionDenied(nc, before, inbox); err != nil {
		return fmt.Errorf("%w: answers arrive on it, so allow it, or choose an inbox prefix that is allowed (--inbox-prefix, nats.CustomInboxPrefix)", err)
	}
	return nil
}

// DeniedSubscription returns the subject to which an error of a connection denies to subscribe, if it does.
func DeniedSubscription(err error) (subject string, ok bool) { return denied(err, "Subscription to") }

// DeniedPublication returns the subject to which an error of a connection denies to publish, if it does.
func DeniedPublication(err error) (subject string, ok bool) { return denied(err, "Publish to") }

// violation returns the subject that the connection's last error denies, if that error is
// not before.
func violation(nc *nats.Conn, before error, what string) (subject string, ok bool) {
	last := nc.LastError()
	if last == before {
		return "", false
	}
	return denied(last, what)
}

// denied returns the subject that err denies. what is how nats-server begins the error.
func denied(err error, what string) (subject string, ok bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	_, rest, ok := strings.Cut(err.Error(), what+` "`)
	subject, _, _ = strings.Cut(rest, `"`)
	return subject, ok
}

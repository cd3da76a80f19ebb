package wire

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// NATS does not answer a request that a user may not make. The server reports the missing
// permission to the connection, whose handlers belong to the caller, and nats.go keeps only the
// last error of a connection. So a call whose time is over looks at that error. A later denial
// hides an earlier one.

// Denied returns the denial of the inbox of nats.go's own answers, or since before of something
// that the caller publishes. A connection subscribes to its inbox once, so that denial may be older
// than the request.
func Denied(nc *nats.Conn, before error, publishes func(subject string) bool) error {
	inbox := nc.NewRespInbox()
	inbox = inbox[:strings.LastIndexByte(inbox, '.')] + ".*"
	return cmp.Or(InboxDenied(nc, nil, inbox), PublishDenied(nc, before, publishes))
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
		return fmt.Errorf("%w: answers arrive on it, so allow it, or choose an inbox prefix that is allowed "+
			"(--inbox-prefix, nats.CustomInboxPrefix)", err)
	}
	return nil
}

// DeniedSubscription returns the subject to which an error of a connection denies to subscribe, if
// it does.
func DeniedSubscription(err error) (subject string, ok bool) { return denied(err, "Subscription to") }

// DeniedPublication returns the subject to which an error of a connection denies to publish, if it
// does.
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

package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// NATS does not answer a request that a user may not make. The server reports the missing permission
// to the connection, whose handlers belong to the caller, and nats.go keeps only the last error of a
// connection. So a client that waits looks at that error.
//
// A later denial hides an earlier one. So where there was a denial, a request that is neither answered
// nor denied probes its own permissions. Without that it would last until its time is over, as
// TestClientWithoutPermission shows.

// probing has the connections that a probe uses now.
var probing sync.Map

const (
	firstLook = 20 * time.Millisecond // then after twice as long, and so on
	lastLook  = 5 * time.Second
)

// Denied returns the denial of an inbox, or since before of something that the caller publishes. A client subscribes to
// its inbox once, so its denial may be older than the request.
func Denied(nc *nats.Conn, before error, inbox string, publishes func(subject string) bool) error {
	return cmp.Or(InboxDenied(nc, nil, inbox), PublishDenied(nc, before, publishes))
}

// Probe subscribes to an inbox, and publishes on a subject where a message without a reply subject does nothing (empty:
// there is none). It returns a denial of either. made is false if another probe of the connection is under way: two
// would hide each other's denials.
func Probe(
	ctx context.Context, nc *nats.Conn, harmless string, publishes func(subject string) bool,
) (made bool, denial error) {
	if _, busy := probing.LoadOrStore(nc, true); busy {
		return false, nil
	}
	defer probing.Delete(nc)
	before, inbox := nc.LastError(), nc.NewInbox()+".*" // as that of all requests is
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return true, nil
	}
	defer sub.Unsubscribe()
	if harmless != "" && nc.Publish(harmless, nil) != nil {
		return true, nil
	}
	// The server answers in order: what it says of these comes before its answer to the flush.
	if nc.FlushWithContext(ctx) != nil {
		return true, nil
	}
	return true, cmp.Or(InboxDenied(nc, before, inbox), PublishDenied(nc, before, publishes))
}

// WatchDenials returns a context that ends when NATS denies something on which publishes says that its owner publishes,
// or the inbox of nats.go's own answers. Its cause is the denial. stop must be called.
func WatchDenials(
	ctx context.Context, nc *nats.Conn, publishes func(subject string) bool,
) (_ context.Context, stop func()) {
	before := nc.LastError()
	ctx, end := context.WithCancelCause(ctx)
	inbox := nc.NewRespInbox()
	inbox = inbox[:strings.LastIndexByte(inbox, '.')] + ".*"
	var watching sync.WaitGroup
	watching.Go(func() {
		probed := false
		for pause := firstLook; ; pause = min(2*pause, lastLook) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			if !errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
				continue
			}
			err := Denied(nc, before, inbox, publishes)
			if err == nil && !probed {
				probed, err = Probe(ctx, nc, "", publishes)
			}
			if err != nil {
				end(err)
				return
			}
		}
	})
	return ctx, func() { end(nil); watching.Wait() }
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

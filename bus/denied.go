package bus

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// deafness is that the inbox of all requests was refused. It is subscribed to, and
// refused, but once a connection; later errors hide that one.
type deafness struct {
	err       error
	connected uint64 // which connection it was
}

// denied returns the denial of a publication since the connection's last error
// was before, or of the inbox of all requests; nil if there is none.
func (c *Client) denied(before error, of func(subject string) bool) error {
	connected := c.nc.Stats().Reconnects // before the error is read: it may be of an earlier connection, not of a later
	if d := c.deaf.Load(); d != nil && d.connected == connected {
		return d.err
	}
	if !errors.Is(c.nc.LastError(), nats.ErrPermissionViolation) {
		return nil
	}
	inbox := c.nc.NewRespInbox()
	if err := c.denialOfInbox(nil, inbox[:strings.LastIndexByte(inbox, '.')]+".*"); err != nil {
		c.deaf.Store(&deafness{err, connected})
		return err
	}
	return c.denial(before, of)
}

// denial returns the denial of a publication since the connection's last error was before.
func (c *Client) denial(before error, of func(subject string) bool) error {
	if subject, ok := c.violation(before, "Publish to"); ok && of(subject) {
		return fmt.Errorf("this user of NATS may not publish to %s: %w", subject, nats.ErrPermissionViolation)
	}
	return nil
}

// denialOfSubscription returns the denial of a subscription since the
// connection's last error was before.
func (c *Client) denialOfSubscription(before error, subject string) error {
	if denied, ok := c.violation(before, "Subscription to"); ok && denied == subject {
		return fmt.Errorf("this user of NATS may not subscribe to %s: %w", subject, nats.ErrPermissionViolation)
	}
	return nil
}

// denialOfInbox is denialOfSubscription for where answers arrive.
func (c *Client) denialOfInbox(before error, inbox string) error {
	if err := c.denialOfSubscription(before, inbox); err != nil {
		return fmt.Errorf("%w: answers arrive there, so allow it, or choose an inbox prefix that is allowed", err)
	}
	return nil
}

// violation returns what the connection's last error, if it is not before, says may not be done with
// which subject.
func (c *Client) violation(before error, what string) (subject string, ok bool) {
	last := c.nc.LastError()
	if last == before || !errors.Is(last, nats.ErrPermissionViolation) {
		return "", false
	}
	_, rest, ok := strings.Cut(last.Error(), what+` "`)
	subject, _, _ = strings.Cut(rest, `"`)
	return subject, ok
}

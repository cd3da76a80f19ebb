package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// deniedLook is how long a request goes unanswered before the client asks
// whether the server refused it.
const deniedLook = 20 * time.Millisecond

// deafness is that the inbox of all requests was refused. It is subscribed to, and
// refused, but once a connection; later errors hide that one.
type deafness struct {
	err       error
	connected uint64 // which connection it was
}

// attempting returns a context for one attempt at a request on subject, or on
// subjects below it where it ends with a dot. It ends, with the reason as its cause, when the
// attempt has taken attemptTimeout, or when the server refuses the request or the inbox of its answer
// for want of a permission. Of that NATS tells only the connection, whose handlers are
// the caller's, and the last error of the connection is all that others can see. stop
// must be called.
func (c *Client) attempting(ctx context.Context, subject string) (_ context.Context, stop func()) {
	before := c.nc.LastError()
	ctx, cancel := context.WithCancelCause(ctx)
	look := time.AfterFunc(deniedLook, func() {
		late, stop := context.WithTimeout(ctx, attemptTimeout-deniedLook)
		defer stop()
		if err := c.denied(late, before, subject); err != nil {
			cancel(err)
			return
		}
		<-late.Done()
		cancel(late.Err())
	})
	return ctx, func() { look.Stop(); cancel(nil) }
}

// denied returns the denial of a request on subject that was sent since the
// connection's last error was before; nil if there is none.
func (c *Client) denied(ctx context.Context, before error, subject string) error {
	// The server answers in order: what it says of the request comes before
	// its answer to this.
	if c.nc.FlushWithContext(ctx) != nil {
		return nil
	}
	connected := c.nc.Stats().Reconnects
	if d := c.deaf.Load(); d != nil && d.connected == connected {
		return d.err
	}
	inbox := c.nc.NewRespInbox()
	inbox = inbox[:strings.LastIndexByte(inbox, '.')] + ".*"
	if err := c.denialOfInbox(inbox); err != nil {
		c.deaf.Store(&deafness{err, connected})
		return err
	}
	return c.denial(before, subject)
}

// denial returns the connection's last error if it is a denial of subject since
// before.
func (c *Client) denial(before error, subject string) error {
	if !strings.HasSuffix(subject, ".") {
		subject += `"`
	}
	last := c.nc.LastError()
	if last == before || !errors.Is(last, nats.ErrPermissionViolation) || !strings.Contains(last.Error(), `Publish to "`+subject) {
		return nil
	}
	return fmt.Errorf("this user of NATS may not publish to %s: %w", strings.Trim(subject, `".`), nats.ErrPermissionViolation)
}

// denialOfInbox is denialOfSubscription for where answers arrive.
func (c *Client) denialOfInbox(inbox string) error {
	if err := c.denialOfSubscription(inbox); err != nil {
		return fmt.Errorf("%w: answers arrive there, so allow it, or choose an inbox prefix that is allowed", err)
	}
	return nil
}

// denialOfSubscription returns the connection's last error if it is that it may
// not subscribe to subject.
func (c *Client) denialOfSubscription(subject string) error {
	last := c.nc.LastError()
	if !errors.Is(last, nats.ErrPermissionViolation) || !strings.Contains(last.Error(), `Subscription to "`+subject+`"`) {
		return nil
	}
	return fmt.Errorf("this user of NATS may not subscribe to %s: %w", subject, nats.ErrPermissionViolation)
}

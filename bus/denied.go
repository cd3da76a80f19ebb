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

// noticeDenial returns a context for what is published on subject, or on
// subjects below it where it ends with a dot. It ends early, with the reason as
// its cause, when the server refuses the publication or the inbox of the answers for want of a
// permission. Of that NATS tells only the connection, whose handlers
// are the caller's, and the last error of the connection is all that others
// can see. ctx needs a deadline. stop must be called.
func (c *Client) noticeDenial(ctx context.Context, subject string) (_ context.Context, stop func()) {
	before := c.nc.LastError()
	ctx, cancel := context.WithCancelCause(ctx)
	look := time.AfterFunc(deniedLook, func() {
		// The server answers in order: what it says of the request comes before
		// its answer to this.
		if c.nc.FlushWithContext(ctx) != nil {
			return
		}
		connected := c.nc.Stats().Reconnects
		if d := c.deaf.Load(); d != nil && d.connected == connected {
			cancel(d.err)
			return
		}
		inbox := c.nc.NewRespInbox()
		inbox = inbox[:strings.LastIndexByte(inbox, '.')] + ".*"
		if err := c.denialOfInbox(inbox); err != nil {
			c.deaf.Store(&deafness{err, connected})
			cancel(err)
		} else if err := c.denial(before, subject); err != nil {
			cancel(err)
		}
	})
	return ctx, func() { look.Stop(); cancel(nil) }
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

// denialOfInbox returns the connection's last error if it is that it may not
// subscribe to inbox.
func (c *Client) denialOfInbox(inbox string) error {
	last := c.nc.LastError()
	if !errors.Is(last, nats.ErrPermissionViolation) || !strings.Contains(last.Error(), `Subscription to "`+inbox+`"`) {
		return nil
	}
	return fmt.Errorf("this user of NATS may not subscribe to %s, where answers arrive: allow it, or choose an inbox prefix that is allowed: %w", inbox, nats.ErrPermissionViolation)
}

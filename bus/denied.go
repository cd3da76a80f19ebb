package bus

import (
	"cmp"
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

// noticeDenial returns a context for what is published on subject, or on
// subjects below it where it ends with a dot. It ends early, with the reason as
// its cause, when the server refuses the publication or the way of its answers for want of a
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
		if err := c.denial(before, subject); err != nil {
			cancel(err)
		}
	})
	return ctx, func() { look.Stop(); cancel(nil) }
}

// denial returns the connection's last error if it is a denial of subject since
// before, or one of the answers.
func (c *Client) denial(before error, subject string) error {
	last := c.nc.LastError()
	if !errors.Is(last, nats.ErrPermissionViolation) {
		return nil
	}
	if !strings.HasSuffix(subject, ".") {
		subject += `"`
	}
	inbox := cmp.Or(c.nc.Opts.InboxPrefix, "_INBOX") + "."
	switch text := last.Error(); {
	case last != before && strings.Contains(text, `Publish to "`+subject):
		return fmt.Errorf("this user of NATS may not publish to %s: %w", strings.Trim(subject, `".`), nats.ErrPermissionViolation)
	// The subscription that all answers use is made, and refused, but once.
	case strings.Contains(text, `Subscription to "`+inbox), strings.Contains(text, `Publish with Reply of "`+inbox):
		return fmt.Errorf("this user of NATS may not have answers at %s>: allow it, or choose an inbox prefix that is allowed: %w", inbox, nats.ErrPermissionViolation)
	}
	return nil
}

package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// deniedLook is how long a request goes unanswered before the client looks
// whether the server refused it. It looks again after twice as long, and so on.
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
	a := &attempt{c: c, subject: subject, before: c.nc.LastError(), pause: deniedLook}
	a.ctx, a.end = context.WithCancelCause(ctx)
	a.mu.Lock()
	a.timer = time.AfterFunc(a.pause, a.look)
	a.mu.Unlock()
	return a.ctx, a.stop
}

// attempt is what watches over an attempt. It costs no goroutine while it waits:
// there may be many that are slow.
type attempt struct {
	c       *Client
	subject string
	before  error // the connection's last one
	ctx     context.Context
	end     context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer
	pause time.Duration // before the next look
	took  time.Duration // until the last one
}

func (a *attempt) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer.Stop()
	a.end(nil)
}

func (a *attempt) look() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took += a.pause
	if err := a.c.denied(a.before, a.subject); err != nil {
		a.end(err)
		return
	}
	if a.took >= attemptTimeout {
		a.end(context.DeadlineExceeded)
		return
	}
	if a.ctx.Err() == nil {
		a.pause = min(2*a.pause, attemptTimeout-a.took)
		a.timer.Reset(a.pause)
	}
}

// denied returns the denial of a request on subject that was sent since the
// connection's last error was before; nil if there is none.
func (c *Client) denied(before error, subject string) error {
	if d := c.deaf.Load(); d != nil && d.connected == c.nc.Stats().Reconnects {
		return d.err
	}
	if !errors.Is(c.nc.LastError(), nats.ErrPermissionViolation) {
		return nil
	}
	inbox := c.nc.NewRespInbox()
	inbox = inbox[:strings.LastIndexByte(inbox, '.')] + ".*"
	if err := c.denialOfInbox(inbox); err != nil {
		c.deaf.Store(&deafness{err, c.nc.Stats().Reconnects})
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

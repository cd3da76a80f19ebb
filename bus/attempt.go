package bus

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go"
)

// firstLook is how long a request goes unanswered before the client looks
// whether the server refused it. It looks again after twice as long, and so on.
const firstLook = 20 * time.Millisecond

// attempt watches over one attempt at a request. It costs no goroutine while it
// waits: there may be many that are slow.
type attempt struct {
	c      *Client
	of     func(subject string) bool // what is published on
	limit  time.Duration             // 0: the context's alone
	before error                     // the connection's last error
	ctx    context.Context
	end    context.CancelCauseFunc
	probes sync.WaitGroup // added to under mu while ctx lasts

	mu     sync.Mutex
	timer  *time.Timer
	pause  time.Duration // before the next look
	took   time.Duration // until the last one
	silent string        // subject on which a message without reply does nothing; empty: there is none, or it was sent
}

// attempting returns a context for an attempt at a request on subject. It ends,
// with the reason as its cause, when the attempt has taken limit, or when the server
// refuses the request or the inbox of its answer for want of a permission. Of that NATS
// tells only the connection, whose handlers are the caller's, and the last error
// of the connection is all that others can see. stop must be called.
func (c *Client) attempting(ctx context.Context, limit time.Duration, subject string) (_ context.Context, stop func()) {
	a := &attempt{c: c, limit: limit, of: func(s string) bool { return s == subject }}
	if strings.HasPrefix(subject, SubjectSegment+".") || subject == SubjectSnowflake || subject == SubjectDecode {
		a.silent = subject
	}
	return a.start(ctx)
}

func (a *attempt) start(ctx context.Context) (_ context.Context, stop func()) {
	a.before, a.pause = a.c.nc.LastError(), firstLook
	a.ctx, a.end = context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(a.pause, a.look)
	return a.ctx, a.stop
}

// stop ends the attempt, and waits for its probe, which then ends at once.
func (a *attempt) stop() {
	a.mu.Lock()
	a.timer.Stop()
	a.end(nil)
	a.mu.Unlock()
	a.probes.Wait()
}

// look ends the attempt if it was refused, or has lasted too long.
func (a *attempt) look() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took += a.pause
	last := a.c.nc.LastError()
	switch err := a.c.denied(a.before, a.of); {
	case err != nil:
		a.end(err)
	case a.limit > 0 && a.took >= a.limit:
		a.end(context.DeadlineExceeded)
	case a.ctx.Err() == nil:
		if a.silent != "" && last != a.before && errors.Is(last, nats.ErrPermissionViolation) {
			subject := a.silent
			a.silent = ""
			a.probes.Go(func() { a.probe(subject) })
		}
		a.pause *= 2
		if a.limit > 0 {
			a.pause = min(a.pause, a.limit-a.took)
		}
		a.timer.Reset(a.pause)
	}
}

// probe finds out by itself what a request may do, where the denial of something else may have
// hidden that of the request.
func (a *attempt) probe(subject string) {
	select {
	case a.c.probing <- struct{}{}: // one at a time, or they would hide each other's
		defer func() { <-a.c.probing }()
	case <-a.ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(a.ctx, time.Second)
	defer cancel()
	connected := a.c.nc.Stats().Reconnects
	before, inbox := a.c.nc.LastError(), a.c.nc.NewInbox()+".*" // as that of all requests is
	sub, err := a.c.nc.SubscribeSync(inbox)
	if err != nil {
		return
	}
	defer sub.Unsubscribe()
	// The server answers in order: what it says of the subscription comes before
	// its answer to a flush.
	if a.c.nc.FlushWithContext(ctx) != nil {
		return
	}
	if err := wire.InboxDenied(a.c.nc, before, inbox); err != nil {
		a.c.deaf.Store(&deafness{err, connected})
		a.end(err)
		return
	}
	before = a.c.nc.LastError()
	if a.c.nc.Publish(subject, nil) != nil || a.c.nc.FlushWithContext(ctx) != nil {
		return
	}
	if err := wire.PublishDenied(a.c.nc, before, a.of); err != nil {
		a.end(err)
	}
}

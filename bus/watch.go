package bus

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// NATS does not answer a request that a user may not make. The server reports the missing permission
// to the connection, whose handlers belong to the caller, and nats.go keeps only the last error of a
// connection. So a client that waits looks at that error.
//
// A later denial hides an earlier one. So where there was a denial, a request that is neither answered
// nor denied probes its own permissions. Without that it would last until its time is over, as
// TestClientWithoutPermission shows.

const (
	firstLook = 20 * time.Millisecond // then after twice as long, and so on
	lastLook  = 5 * time.Second
)

// watch looks at the connection's last error while a request waits for its answer. It costs no
// goroutine between two looks: many requests may wait.
type watch struct {
	c         *Client
	publishes func(subject string) bool // what the request publishes on
	harmless  string                    // of these subjects one on which a message without reply does nothing; empty: none
	limit     time.Duration             // how long the request may take; 0 or less: as long as its context
	before    error                     // the connection's last error when the request began
	ctx       context.Context
	end       context.CancelCauseFunc
	began     time.Time

	mu     sync.Mutex
	timer  *time.Timer
	pause  time.Duration // before the next look
	probed bool
}

// watched returns a context for a request on subject. It ends, with the reason as its cause, after
// limit (0: never), or when NATS denies the request or the inbox of its answer. stop must be called.
func (c *Client) watched(ctx context.Context, limit time.Duration, subject string) (_ context.Context, stop func()) {
	w := &watch{c: c, limit: limit, publishes: func(s string) bool { return s == subject }}
	if strings.HasPrefix(subject, SubjectSegment+".") || subject == SubjectSnowflake || subject == SubjectDecode {
		w.harmless = subject
	}
	return w.start(ctx)
}

func (w *watch) start(ctx context.Context) (_ context.Context, stop func()) {
	w.before, w.began, w.pause = w.c.nc.LastError(), time.Now(), firstLook
	w.ctx, w.end = context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.pause, w.look)
	return w.ctx, w.stop
}

// stop ends the watch. A look that is under way ends first.
func (w *watch) stop() {
	w.end(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
}

// look ends the request if NATS denied it, or if it has lasted too long.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.denied()
	if err == nil && !w.probed && errors.Is(w.c.nc.LastError(), nats.ErrPermissionViolation) && w.c.probing.TryLock() {
		err, w.probed = w.probe(), true
		w.c.probing.Unlock()
	}
	switch {
	case err != nil:
		w.end(err)
	case w.left() <= 0:
		w.end(context.DeadlineExceeded)
	case w.ctx.Err() == nil:
		w.pause = min(2*w.pause, lastLook, w.left())
		w.timer.Reset(w.pause)
	}
}

// left is how long the request may still take.
func (w *watch) left() time.Duration {
	if w.limit <= 0 {
		return math.MaxInt64
	}
	return w.limit - time.Since(w.began)
}

// probe subscribes to an inbox, and publishes where that does no harm, and returns a denial of either.
// It must be the only probe of the connection: two would hide each other's denials.
func (w *watch) probe() error {
	ctx, cancel := context.WithTimeout(w.ctx, min(time.Minute, w.left()))
	defer cancel()
	nc := w.c.nc
	before, inbox := nc.LastError(), nc.NewInbox()+".*" // as that of all requests is
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil
	}
	defer sub.Unsubscribe()
	if w.harmless != "" && nc.Publish(w.harmless, nil) != nil {
		return nil
	}
	// The server answers in order: what it says of these comes before its answer to the flush.
	if nc.FlushWithContext(ctx) != nil {
		return nil
	}
	return cmp.Or(wire.InboxDenied(nc, before, inbox), wire.PublishDenied(nc, before, w.publishes))
}

// denied returns the denial of the request, or of the inbox of all answers. nats.go subscribes to that
// once a connection, so its denial may be older than the request.
func (w *watch) denied() error {
	nc := w.c.nc
	if !errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		return nil
	}
	inbox := nc.NewRespInbox()
	inbox = inbox[:strings.LastIndexByte(inbox, '.')] + ".*"
	return cmp.Or(wire.InboxDenied(nc, nil, inbox), wire.PublishDenied(nc, w.before, w.publishes))
}

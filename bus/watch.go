package bus

import (
	"cmp"
	"context"
	"errors"
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

// denied returns the denial of the call, if NATS denied it.
func (p *pending) denied(ctx context.Context) error {
	nc := p.c.nc
	if !errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		return nil
	}
	publishes := func(subject string) bool { return subject == p.subject }
	if err := denied(nc, p.before, p.c.inbox.subject, publishes); err != nil || p.probed {
		return err
	}
	if !p.c.probing.TryLock() {
		return nil
	}
	defer p.c.probing.Unlock()
	p.probed = true
	harmless := ""
	if strings.HasPrefix(p.subject, SubjectSegment+".") || p.subject == SubjectSnowflake || p.subject == SubjectDecode {
		harmless = p.subject
	}
	ctx, cancel := context.WithDeadline(ctx, p.attemptAt)
	defer cancel()
	return probe(ctx, nc, harmless, publishes)
}

// denied returns the denial of an inbox, or since before of something that the caller publishes. A client subscribes to its
// inbox once, so its denial may be older than the request.
func denied(nc *nats.Conn, before error, inbox string, publishes func(subject string) bool) error {
	return cmp.Or(wire.InboxDenied(nc, nil, inbox), wire.PublishDenied(nc, before, publishes))
}

// probe subscribes to an inbox, and publishes on a subject where a message without a reply subject does nothing (empty:
// there is none). It returns a denial of either. It must be the only probe of the connection: two would hide each other's
// denials.
func probe(ctx context.Context, nc *nats.Conn, harmless string, publishes func(subject string) bool) error {
	before, inbox := nc.LastError(), nc.NewInbox()+".*" // as that of all requests is
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil
	}
	defer sub.Unsubscribe()
	if harmless != "" && nc.Publish(harmless, nil) != nil {
		return nil
	}
	// The server answers in order: what it says of these comes before its answer to the flush.
	if nc.FlushWithContext(ctx) != nil {
		return nil
	}
	return cmp.Or(wire.InboxDenied(nc, before, inbox), wire.PublishDenied(nc, before, publishes))
}

// watch returns a context that ends when NATS denies something on which publishes says that its owner publishes, or the inbox of
// nats.go's own answers. Its cause is the denial. stop must be called.
func (c *Client) watch(ctx context.Context, publishes func(subject string) bool) (_ context.Context, stop func()) {
	nc, before := c.nc, c.nc.LastError()
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
			err := denied(nc, before, inbox, publishes)
			if err == nil && !probed && c.probing.TryLock() {
				err, probed = probe(ctx, nc, "", publishes), true
				c.probing.Unlock()
			}
			if err != nil {
				end(err)
				return
			}
		}
	})
	return ctx, func() { end(nil); watching.Wait() }
}

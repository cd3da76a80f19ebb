package generator

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

var errUnchecked = errors.New("the generator was cut off, and has not checked its worker's record since")

// reconnectGuard holds requests for snowflakes back after the connection to NATS was lost, until
// the worker's record was checked again. The registry may have lost the record meanwhile, for example
// because its JetStream was restored, and another generator may have taken the worker.
type reconnectGuard struct {
	gate
	checked   atomic.Uint64 // the number of reconnects at the last check
	verifying atomic.Bool   // the worker's record is being checked for another reason
}

// reconnects is the number of reconnects so far. nats.go counts a reconnect before a message can
// arrive on the new connection. Its channels and callbacks report the reconnect only later.
func (g *Generator) reconnects() uint64 { return g.cfg.Conn.Stats().Reconnects }

// forceReconnect makes nats.go connect again. It does not wait for that, nor for the connection's lock.
func (g *Generator) forceReconnect() {
	g.tasks.start(func() {
		if err := g.cfg.Conn.ForceReconnect(); err != nil {
			g.log.Debug("a reconnect failed", "error", err)
		}
	})
}

// watchConnection shuts the guard when the connection is lost, and checks the worker after a
// reconnect. It waits for nothing else: nats.go holds the connection's lock
// while it dials, and while a write to the server hangs.
func (g *Generator) watchConnection(ctx context.Context, status <-chan nats.Status) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-status:
			if s == nats.RECONNECTING {
				g.guard.shut()
			} else {
				g.tasks.start(g.checkWorker)
			}
		}
	}
}

// unchecked reports whether the worker's record must be checked before a snowflake is issued.
// It counts reconnects itself, because status events come too late. It may wait for the
// connection's lock.
func (g *Generator) unchecked() bool {
	if g.reconnects() == g.guard.checked.Load() {
		return g.guard.isShut.Load()
	}
	if g.guard.shut() {
		g.tasks.start(g.checkWorker)
	}
	return true
}

// checkWorker opens the guard when the worker's record has been checked, or the registry
// does not answer.
func (g *Generator) checkWorker() {
	connection := g.reconnects()
	if g.noWorker() == nil {
		g.flakes.Verify(g.life)
	}
	same := g.cfg.Conn.IsConnected() && g.reconnects() == connection // otherwise the next connection checks again
	if same && g.life.Err() == nil {
		g.guard.checked.Store(connection)
		g.guard.open(time.Now())
	}
}

// verifyWorker checks the worker's record, in one goroutine at a time.
func (g *Generator) verifyWorker() {
	if g.guard.verifying.CompareAndSwap(false, true) {
		g.tasks.start(func() {
			defer g.guard.verifying.Store(false)
			g.flakes.Verify(g.life)
		})
	}
}

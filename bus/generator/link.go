package generator

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// flushWait bounds the wait until the NATS server has processed what was sent.
const flushWait = 5 * time.Second

// link is the connection to NATS. Its methods are safe for concurrent use. It has no lock.
type link struct {
	conn  *nats.Conn
	log   *slog.Logger
	away  *away
	tasks *tasks
}

// reconnects is the number of reconnects so far. nats.go counts a reconnect before a message can
// arrive on the new connection. Its channels and callbacks report the reconnect only later. It may
// wait for the connection's lock.
func (l *link) reconnects() uint64 { return l.conn.Stats().Reconnects }

// look notes a reconnect.
func (l *link) look() { l.away.reconnected(at(time.Now()), l.reconnects()) }

// reconnect makes nats.go connect again, to another server of its list if there is one. It does not
// wait for that, nor for the connection's lock, which nats.go holds while it dials, and while a
// write to the server hangs.
func (l *link) reconnect() {
	l.tasks.start(func() {
		if err := l.conn.ForceReconnect(); err != nil {
			l.log.Debug("a reconnect failed", "error", err)
		}
	})
}

// hears reports whether the connection delivers what other generators send. A connection that
// hangs counts as connected for minutes, and delivers nothing.
func (l *link) hears() bool {
	_, ok := l.away.steadySince(time.Now())
	return ok && l.conn.IsConnected()
}

// heardFor is for how long this generator has heard all that the others send.
func (l *link) heardFor(now time.Time) time.Duration {
	l.look()
	if since, ok := l.away.steadySince(now); ok {
		return now.Sub(since)
	}
	return 0
}

// send sends a message. If that fails, its receiver has the same as if it was lost on its way.
func (l *link) send(msg *nats.Msg) {
	if err := l.conn.PublishMsg(msg); err != nil {
		l.log.Debug("a message cannot be sent", "subject", msg.Subject, "error", err)
	}
}

// flush waits until the server has processed all that was sent.
func (l *link) flush() error { return l.conn.FlushTimeout(flushWait) }

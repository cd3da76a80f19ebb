package generator

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// deafAfter is how long the main loop may run while heartbeats are overdue. Then the generator
	// reconnects: about 4 s after the last heartbeat that came back.
	deafAfter = 2500 * time.Millisecond
	// firstReconnect and lastReconnect are the pauses between such reconnects. Each pause is twice the last.
	firstReconnect = 5 * time.Second
	lastReconnect  = time.Minute
	// tooOld: if no heartbeat came back for longer than this, the callers of that time have given up.
	tooOld = 5 * time.Second
)

// silence is what a generator does about heartbeats that do not come back.
type silence struct {
	deafness // owned by Run

	// connection is the number of reconnects when heartbeats last came back in time.
	connection atomic.Uint64

	mu    sync.Mutex
	about time.Time // the last heartbeat before the last pause that made requests old
}

// deafness measures how long heartbeats have been overdue while the main loop ran without a pause. A process
// that stood still is not deaf.
type deafness struct {
	looked  time.Time     // the last look
	lasted  time.Duration // how long heartbeats have been overdue on this connection
	pause   time.Duration // before the next reconnect
	resting time.Duration // what is left of it
}

// look reports whether to reconnect now. overdue: no heartbeat came back in time. A reconnect that takes long does not
// shorten the pause before the next one.
func (d *deafness) look(now time.Time, overdue, connected bool) bool {
	passed := now.Sub(d.looked)
	if !overdue || passed > heartbeatEvery {
		*d = deafness{looked: now}
		return false
	}
	d.looked = now
	d.lasted += passed
	d.resting -= passed
	if !connected {
		d.lasted = 0
	}
	if d.lasted < deafAfter || d.resting > 0 {
		return false
	}
	d.pause = min(max(2*d.pause, firstReconnect), lastReconnect)
	d.resting = d.pause
	return true
}

// watchSilence reconnects if the connection counts as connected, but brings no heartbeats back. nats.go
// takes another server of its list if there is one. A connection within the process has no other server.
func (g *Generator) watchSilence(now time.Time) {
	_, lasted := g.group.pulse.silence(now)
	if lasted <= overdue {
		g.silence.connection.Store(g.reconnects())
	}
	if g.silence.look(now, lasted > overdue, g.cfg.Conn.IsConnected()) && g.cfg.Conn.Opts.InProcessServer == nil {
		g.log.Warn("reconnecting, because the generator's own heartbeats do not come back", "url", g.cfg.Conn.ConnectedUrlRedacted())
		g.forceReconnect()
	}
}

// delivery is what NATS delivers to one opening of a service. When it is old, its requests have no caller any
// more. They get no answer, so that they use up no IDs.
type delivery struct {
	connection atomic.Uint64 // the number of reconnects when it became old
	old        atomic.Bool
}

// isOld reports whether a request that is read now is too old. Each request over NATS calls it.
func (g *Generator) isOld(d *delivery, now time.Time) bool {
	if now.UnixNano() > g.group.pulse.oldAfter.Load() {
		before, _ := g.group.pulse.silence(now)
		g.dropOld(now, before)
	}
	return d.old.Load() && !g.isNew(d)
}

// isNew reports whether NATS has delivered through another connection since: such requests are new.
func (g *Generator) isNew(d *delivery) bool {
	if g.reconnects() == d.connection.Load() {
		return false
	}
	d.old.Store(false)
	return true
}

// dropOld makes what the services receive now old, because there was a pause: the process stood still, or the
// connection hung. before is the last heartbeat that came back before the pause. After a reconnect nothing is old.
func (g *Generator) dropOld(now, before time.Time) {
	if before.IsZero() || apart(now, before) <= tooOld {
		return
	}
	g.silence.mu.Lock()
	defer g.silence.mu.Unlock()
	if g.silence.about.Equal(before) {
		return
	}
	g.silence.about = before
	connection := g.reconnects()
	if connection != g.silence.connection.Load() {
		return
	}
	g.log.Warn("this generator stood still or was cut off: the requests that came meanwhile are dropped, because their callers have given up",
		"since", before.UTC().Format(time.RFC3339))
	for _, s := range []*issuer{g.segments, g.snowflakes} {
		if d := s.delivery.Load(); d != nil {
			d.connection.Store(connection)
			d.old.Store(true)
		}
	}
}

// renew leaves the queue group if what it delivers is old, and stepAside enters it again: NATS passes only new
// requests to a new subscription.
func (s *issuer) renew(now time.Time) error {
	if s.service == nil || !s.delivery.Load().old.Load() || s.g.isNew(s.delivery.Load()) || !s.g.mayLeave(now) {
		return nil
	}
	return s.close()
}

// mayLeave reports whether a queue group may be left now: NATS delivers. Otherwise a reconnect is near, after which the
// generator must leave again, see [leaving].
func (g *Generator) mayLeave(now time.Time) bool {
	_, lasted := g.group.pulse.silence(now)
	return lasted <= overdue && g.cfg.Conn.IsConnected()
}

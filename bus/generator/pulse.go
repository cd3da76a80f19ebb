package generator

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// silentAfter is the time without a heartbeat that came back after which a generator counts as
	// cut off. It is less than heartbeatExpires, after which the others count it as gone.
	silentAfter = 2 * time.Second
	// overdue is the time without a heartbeat that came back after which the next one ends a pause.
	overdue = heartbeatEvery + heartbeatEvery/2
	// settles is how long after a pause the generator may still read requests that came
	// before its end.
	settles = time.Second
	// keptBeats is how many heartbeats may be on their way back.
	keptHeartbeats = 16
)

// pulse knows since when a generator has been in touch with NATS without a pause, by
// its own heartbeats that came back. A pause is a process that stood still (SIGSTOP, a machine
// that slept), a connection that hung or was away, or a NATS server that stood still.
// Its methods take the time and are safe for concurrent use; the zero value is ready.
//
// It bounds the age of a request. NATS delivers in order on a connection, so NATS passed on
// a request after the echo of a heartbeat later than that heartbeat was sent. After a pause an echo
// alone is not enough. Each subscription has its own queue, so the generator may read the
// echo before an earlier request. And a NATS server that stood still reads the connections
// of its clients in any order. So for a second after a pause every request counts as old as
// the heartbeat before the pause.
type pulse struct {
	// returned is called when a pause of more than silentAfter is over, before any other
	// method shows that. before is the last heartbeat that came back before the pause. It is called when
	// the process sends a heartbeat again, and when NATS brings one back (heard).
	returned func(before time.Time, heard bool)

	beaten atomic.Pointer[time.Time] // when the last heartbeat was sent; nil: none was
	back   atomic.Pointer[time.Time] // when the newest heartbeat was sent that came back; nil: none did
	pauses atomic.Uint64             // how many of more than silentAfter are over

	mu     sync.Mutex
	last   uint64 // number of the last heartbeat
	sent   [keptHeartbeats]time.Time
	before time.Time // the last heartbeat that came back before the last pause
	until  time.Time // until then requests count as old as before
}

// send returns the number of a heartbeat that is sent now.
func (p *pulse) send(now time.Time) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, still := p.stoodStill(now); still && p.returned != nil {
		p.returned(before, false)
	}
	p.last++
	p.sent[p.last%keptHeartbeats] = now
	p.beaten.Store(&now)
	return p.last
}

// came notes that a heartbeat came back.
func (p *pulse) came(now time.Time, number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number == 0 || number > p.last || p.last-number >= keptHeartbeats {
		return // too old: its place in sent is in use again
	}
	sent, back := p.sent[number%keptHeartbeats], p.back.Load()
	if back != nil && !sent.After(*back) {
		return
	}
	if back != nil && apart(now, *back) > overdue {
		if !now.Before(p.until) {
			p.before = *back
		}
		p.until = now.Add(settles)
	}
	if back != nil && apart(now, *back) > silentAfter {
		p.pauses.Add(1)
		if p.returned != nil {
			p.returned(*back, true)
		}
	}
	p.back.Store(&sent)
}

// stoodStill reports whether the process sends no heartbeats, and returns the last one that came
// back. It is on the way of each request over HTTP.
func (p *pulse) stoodStill(now time.Time) (before time.Time, ok bool) {
	beaten, back := p.beaten.Load(), p.back.Load()
	if beaten == nil || back == nil || apart(now, *beaten) <= silentAfter {
		return time.Time{}, false
	}
	return *back, true
}

// silent returns the last heartbeat that came back if that is longer than silentAfter ago.
// It is on the way of each request over NATS.
func (p *pulse) silent(now time.Time) (back time.Time, ok bool) {
	b := p.back.Load()
	if b == nil || apart(now, *b) <= silentAfter {
		return time.Time{}, false
	}
	return *b, true
}

// hears reports whether NATS has answered lately. A connection that hangs is
// connected for minutes, and brings nothing of what the others say.
func (p *pulse) hears(now time.Time) bool {
	back := p.back.Load()
	return back != nil && apart(now, *back) < heartbeatExpires
}

// age is how old a request can be that the generator reads now.
func (p *pulse) age(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch back := p.back.Load(); {
	case now.Before(p.until):
		return apart(now, p.before)
	case back != nil:
		return apart(now, *back)
	default:
		return 0
	}
}

// apart is how long before now then was. The monotonic clock stops while a machine
// sleeps, and the wall clock may be set back. So the longer time of both counts.
func apart(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

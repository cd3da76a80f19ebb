package generator

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// silentAfter is how long NATS may deliver no heartbeat before the generator counts as
	// cut off. It is less than heartbeatExpires, after which the peers count it as gone.
	silentAfter = 2 * time.Second
	// overdue is how late a heartbeat may come back before it ends a pause.
	overdue = heartbeatEvery + heartbeatEvery/2
	// settles is how long after a pause the generator may still read requests that came
	// before its end.
	settles = time.Second
	// keptHeartbeats is how many heartbeats may be on their way back.
	keptHeartbeats = 16
)

// pulse measures how long the generator has had no contact with NATS, by its own heartbeats that
// came back. A time without contact is a pause: the process stood still (SIGSTOP, a machine that
// slept), the connection hung or was lost, or the NATS server stood still.
// The methods take the time and are safe for concurrent use. The zero value is ready.
//
// The pulse bounds the age of a request. NATS delivers in order on a connection. So when a heartbeat
// comes back, NATS passes on later requests only after that heartbeat was sent. After a pause this
// is not enough. Each subscription has its own queue, so the generator may read the heartbeat before
// an earlier request. And a NATS server that stood still reads the connections of its clients in any
// order. So for a second after a pause every request counts as old as the heartbeat before the pause.
type pulse struct {
	// returned is called at the end of a pause of more than silentAfter, before any other method shows
	// that the pause is over. before is the last heartbeat that came back before the pause. A process
	// that stood still calls it twice: when it sends a heartbeat again, and when that comes back (heard).
	returned func(before time.Time, heard bool)

	beaten atomic.Pointer[time.Time] // when the last heartbeat was sent; nil: none was
	back   atomic.Pointer[time.Time] // when the newest heartbeat that came back was sent; nil: none came back

	// oldAfter is from when on requests may be tooOld, in Unix ns. Each request over NATS looks.
	oldAfter atomic.Int64

	mu     sync.Mutex
	last   uint64 // number of the last heartbeat
	sent   [keptHeartbeats]time.Time
	before time.Time // the last heartbeat that came back before the last pause
	until  time.Time // until then requests count as old as before
	steady time.Time // since then heartbeats have come back without a pause of more than silentAfter
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
		return // too old: its slot in sent is used again
	}
	sent := p.sent[number%keptHeartbeats]
	if _, lasted := p.silence(now); lasted > silentAfter {
		p.steady = now
	}
	if back := p.back.Load(); back != nil {
		if !sent.After(*back) {
			return
		}
		pause := apart(now, *back)
		if pause > overdue {
			if !now.Before(p.until) {
				p.before = *back
			}
			p.until = now.Add(settles)
		}
		if pause > silentAfter && p.returned != nil {
			p.returned(*back, true)
		}
	}
	p.back.Store(&sent)
	p.oldAfter.Store(sent.Add(tooOld).UnixNano())
}

// silence returns when the newest heartbeat that came back was sent, and how long ago that was: the
// longest possible time if none came back. Each request over NATS calls it.
func (p *pulse) silence(now time.Time) (since time.Time, lasted time.Duration) {
	back := p.back.Load()
	if back == nil {
		return time.Time{}, math.MaxInt64
	}
	return *back, apart(now, *back)
}

// steadySince returns since when heartbeats have come back without a pause. ok is false during a pause.
func (p *pulse) steadySince(now time.Time) (since time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, lasted := p.silence(now)
	return p.steady, lasted <= silentAfter
}

// stoodStill reports whether the process has sent no heartbeat for more than silentAfter. before is
// the newest heartbeat that came back. Each request over HTTP calls it.
func (p *pulse) stoodStill(now time.Time) (before time.Time, ok bool) {
	beaten, back := p.beaten.Load(), p.back.Load()
	if beaten == nil || back == nil || apart(now, *beaten) <= silentAfter {
		return time.Time{}, false
	}
	return *back, true
}

// age is how old a request can be that the generator reads now.
func (p *pulse) age(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.until) {
		return apart(now, p.before)
	}
	_, lasted := p.silence(now)
	return lasted
}

// apart is how long before now then was. The monotonic clock stops while a machine
// sleeps, and the wall clock may be set back. So the longer time of both counts.
func apart(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

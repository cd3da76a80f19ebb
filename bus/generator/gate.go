package generator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/snowflake"
)

// gate is what requests wait at while this generator is away, or learns what happened meanwhile.
type gate int

const (
	gateNATS       gate = iota // IDs of tags, also those that another generator borrows. Strict tags need no gate.
	gateHTTP                   // IDs of tags. HTTP is served also without NATS.
	gateSnowflakes             // over both
)

var errUnchecked = fmt.Errorf("%w: the generator was cut off, and has not checked its worker's record since", snowflake.ErrNoWorker)

// isShut reports whether requests that came at this time wait. Each request looks.
func (a *away) isShut(g gate, now time.Time) bool {
	if contact(a.state.Load()) == stateHere {
		if due := a.due.Load(); !now.After(*due) && !now.Round(0).After(due.Round(0)) {
			return false
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m := at(now)
	a.lookLocked(m)
	return a.shutLocked(g, m)
}

func (a *away) shutLocked(g gate, now moment) bool {
	isAway := contact(a.state.Load()) == stateAway
	if g == gateSnowflakes {
		return isAway || a.lessons[theWorker].shut(now)
	}
	return isAway && g == gateNATS || a.lessons[theRecords].shut(now)
}

// hold lets a request wait until the gate is open, and then calls take: at most maxWait in all, then its error
// is timedOut. Snowflakes wait at most gateFor. If most requests wait already, it refuses the request.
func (a *away) hold(g gate, most int64, maxWait time.Duration, timedOut error, take takeFunc) (*allocator.Later, error) {
	if a.waiting.Add(1) > most {
		a.waiting.Add(-1)
		return nil, allocator.ErrOverloaded
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), maxWait, timedOut)
	end := sync.OnceFunc(func() { cancel(); a.waiting.Add(-1) })
	later, now := new(allocator.Later), time.Now()
	later.Begin(new(sync.Mutex), now.Add(borrowSlow), now.Add(maxWait), func(why error) error {
		if why == allocator.ErrTimedOut {
			why = timedOut
		}
		end()
		return why
	})
	go func() {
		var ranges []bus.Range
		err := a.wait(ctx, g)
		if err == nil {
			ranges, err = take(ctx)
		}
		end()
		later.End(ranges, err)
	}()
	return later, nil
}

func (a *away) wait(ctx context.Context, g gate) error {
	if g == gateSnowflakes {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, gateFor, errUnchecked)
		defer cancel()
	}
	for {
		a.mu.Lock()
		shut, changed := a.shutLocked(g, at(time.Now())), a.changed
		a.mu.Unlock()
		if !shut {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drops reports whether a request over NATS that is read now may have come while this generator was away for so long
// that its caller has given up. It gets no answer, so that it uses up no IDs.
func (a *away) drops(now time.Time) bool {
	a.isShut(gateNATS, now) // looks
	return a.dropping.Load()
}

// mustReopen reports whether the services must be opened again, so that NATS passes on only new requests.
func (a *away) mustReopen() bool { return a.dropping.Load() && contact(a.state.Load()) != stateAway }

// reopened notes that they were.
func (a *away) reopened() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if contact(a.state.Load()) != stateAway { // else they will be again
		a.dropping.Store(false)
	}
}

// age is how old a message can be that is read now. It is not settled until all is read that the others sent while this
// generator was away.
func (a *away) age(now time.Time) (age time.Duration, settled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := at(now)
	a.lookLocked(m)
	if a.unsettledLocked(m) {
		return m.since(a.before), false
	}
	return m.since(a.echoed), true
}

// steadySince returns since when this generator has heard all that the others sent. ok is false while it is away.
func (a *away) steadySince(now time.Time) (since time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookLocked(at(now))
	return a.steady.Time, contact(a.state.Load()) != stateAway && !a.steady.IsZero()
}

// missed reports whether heartbeats of the others may have been missed, and not have come since.
func (a *away) missed(now time.Time) bool {
	since, ok := a.steadySince(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	return !ok || since != a.began.Time && now.Sub(since) < heartbeatExpires
}

// takeFunc takes IDs for a request that may wait.
type takeFunc func(context.Context) ([]bus.Range, error)

package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
)

const (
	// firstClaim bounds the first attempt to claim IDs of a strict tag. All its requests wait for
	// that, and an answer that was lost never comes. After each failure the next attempt may take
	// twice as long, up to lastClaim.
	firstClaim = 500 * time.Millisecond
	lastClaim  = 4 * time.Second
	// claimFactor times what the last claim took is the least bound of the next attempt. Else each
	// first attempt of a generator that is far from the store would be in vain.
	claimFactor = 3
	// maxClaims bounds the writes of strict tags that are under way at once. They have nothing to
	// do with maxRefills: each request for a strict tag needs a write, and all those must not keep
	// trend tags from the store.
	maxClaims = 64
	// starvedAgain is how long after one alert starved the next may come. In overload each claim
	// ends one, and the next refusal would begin another.
	starvedAgain = 10 * time.Second
	// passOnAfter is how many conflicts a claim has before its requests are passed on.
	passOnAfter = 2
	// passOnTime bounds the wait for the generator that they are passed on to.
	passOnTime = 500 * time.Millisecond
	// passOnFor is how long the requests that come then are passed on at once.
	passOnFor = 5 * time.Second
)

// strict is what a buffer has if its tag is strict. The buffer's lock guards it.
type strict struct {
	via       string        // the run of the generator that requests are passed on to
	viaUntil  time.Time     // and until when, if none fails
	took      time.Duration // by the last write that succeeded
	starved   time.Time     // when the alert of that name last began
	heldUntil time.Time     // no claim is sent before
}

// strictClaims claims IDs of strict tags for the requests that wait:
//
//	refills.refill ── claim
//	├── awaitHold             while an operator changes the record
//	├── passOn                after conflicts
//	├── write, probe          one compare-and-set of the record
//	└── serve, refuseFirst    the requests that were queued before it
type strictClaims struct {
	*refills
	claimSlots chan struct{} // one for each write of a tag that is known to be strict
}

// Hold keeps the claims of a strict tag back for d, or lets them go on with 0. An operator's write
// to the record could lose to claims again and again. Uniqueness and order do not depend on it.
func (a *strictClaims) Hold(tag string, d time.Duration) {
	b := a.lockedBuffer(tag)
	if b == nil {
		return
	}
	defer b.mu.Unlock()
	if b.strict != nil {
		b.strict.heldUntil = time.Now().Add(d)
		b.wakeLocked()
	}
}

// awaitHold waits while claims are kept back.
func (a *strictClaims) awaitHold(b *buffer) {
	for ok := true; ok; {
		b.mu.Lock()
		left := time.Until(b.strict.heldUntil)
		b.mu.Unlock()
		ok = left > 0 && pause(a.ctx, left, b.wake)
	}
}

// errUnclaimed is the cause when the requests of a strict tag waited in vain.
var errUnclaimed = errors.New("no claim was confirmed in time")

// claim hands out IDs of a strict tag. It takes what the waiting requests need with one write, and
// serves exactly the requests that were queued before that write was sent. It keeps nothing. So an
// ID's place in the order of writes lies between its request and its answer. A request that comes
// later must not get an ID of this write: meanwhile another generator may have answered with a
// higher one.
//
// A write without an answer serves no request. After a certain conflict the next write takes what
// the requests need that wait by then. After passOnAfter conflicts the requests are passed on to
// the generator that the record names: a generator that is far from the store could lose to a near
// one for ever. Passing on never decides the order: the other generator claims IDs after it has
// received the requests, and before it answers.
func (a *strictClaims) claim(b *buffer, timeout time.Duration) error {
	c := Claimed{Tag: b.tag}
	start, single := time.Now(), false
	for wait := firstRace; ; wait = min(2*wait, lastRace) {
		a.awaitHold(b)
		b.mu.Lock()
		p, wanted := b.planStrictLocked(single)
		if c.PassedTo == "" && start.Before(b.strict.viaUntil) {
			c.PassedTo = b.strict.via
		}
		if c.PassedTo != "" && p.fromPeers {
			b.refusePeersLocked()
			p, wanted = b.planStrictLocked(single)
		}
		passes := c.PassedTo != "" && p.need > 0
		if now := time.Now(); passes && (b.strict.via != c.PassedTo || !now.Before(b.strict.viaUntil)) {
			b.strict.via, b.strict.viaUntil = c.PassedTo, now.Add(passOnFor)
		}
		b.mu.Unlock()
		if !wanted {
			return nil
		}
		if passes {
			if grant, err := a.passOn(b, c.PassedTo, p.need); err == nil {
				return a.serve(b, p, grant, c, start)
			}
		}
		c.PassedTo = ""
		p, grant, err := a.write(b, single, timeout)
		if p.need == 0 {
			return err
		}
		if c.Conflicts == 0 {
			start = p.sent // the wait for a turn says nothing about the store
		}
		moved, went := errors.AsType[*AdvancedError](err)
		first, conflict := errors.AsType[*OvertakenError](err)
		switch {
		case err == nil:
			return a.serve(b, p, grant, c, start)
		case errors.Is(err, ErrExhausted) && p.requests > 1:
			single = true // the last IDs may be enough for the first request
			continue
		case errors.Is(err, ErrExhausted):
			a.refuseFirst(b, p, err)
			return nil
		case went:
			a.advanced(b, moved)
		case !conflict || time.Since(start) > attemptTimeout:
			return err
		default:
			if c.Conflicts++; c.Conflicts%passOnAfter == 0 {
				c.PassedTo = first.Run
			}
		}
		if c.Conflicts == 1 {
			continue // most often the record was only old
		}
		if !pause(a.ctx, rand.N(wait), nil) {
			return err
		}
	}
}

// write makes one write, which takes what the requests need that wait when its turn has come. If
// none does, the plan takes no IDs, and there is nothing more to do than to report the error. No
// turn is held while requests are passed on: the turns of two generators that pass on to each other
// could all wait for a turn of the other one.
func (a *strictClaims) write(b *buffer, single bool, timeout time.Duration) (p plan, grant Grant, err error) {
	if err := a.acquire(a.claimSlots); err != nil {
		return p, grant, err
	}
	defer func() { <-a.claimSlots }()
	b.mu.Lock()
	p, wanted := b.planStrictLocked(single)
	timeout = max(timeout, min(claimFactor*b.strict.took, lastClaim))
	b.heard = nil
	b.mu.Unlock()
	if !wanted {
		return p, grant, nil
	}
	ctx, cancel := context.WithTimeout(a.ctx, timeout)
	defer cancel()
	if p.need == 0 {
		return p, grant, a.probe(ctx, b)
	}
	p.sent = time.Now()
	grant, err = a.ask(ctx, b.tag, p)
	return p, grant, err
}

// probe ends the alerts of a tag for which no request waits any more, if the store can be written
// again.
func (a *strictClaims) probe(ctx context.Context, b *buffer) error {
	_, err := a.reserveIDs(ctx, b.tag, plan{}, a.Seen(b.tag))
	if moved, went := errors.AsType[*AdvancedError](err); went {
		a.advanced(b, moved)
		return nil // it is probed again, to end this alert too
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.recoveredLocked(b)
	return nil
}

// passOn asks another generator to claim n IDs.
func (a *strictClaims) passOn(b *buffer, run string, n int64) (Grant, error) {
	ctx, cancel := context.WithTimeout(a.ctx, passOnTime)
	defer cancel()
	seen := a.Seen(b.tag)
	r, err := a.cfg.PassOn(ctx, run, b.tag, n)
	grant := Grant{Range: r, Step: 1, Stored: Stored{Tag: Tag{Order: Strict}}}
	if err == nil {
		err = grant.check(seen)
	}
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.strict.viaUntil = time.Time{}
	}
	return grant, err
}

// planStrictLocked returns what the next claim must take. If no request waits and an alert is not
// over, it takes nothing: it only shows whether the store can be written again. With single it is
// for the first request alone.
func (b *buffer) planStrictLocked(single bool) (p plan, wanted bool) {
	p.strict, p.base, p.before, p.rules = true, b.stepper.base, b.waiters.pushed, b.rulesLocked().Version
	for w := range b.waiters.all() {
		p.need += w.n
		p.requests++
		p.fromPeers = p.fromPeers || w.fromPeer
		if single {
			p.before = w.number + 1
			break
		}
	}
	return p, !b.gone && !b.rulesLocked().Paused && (p.requests > 0 || b.failure != nil || b.alerts != alerts{})
}

// serve hands out the IDs of a claim: to the requests of the plan that still wait, in their order.
// What is left is a gap.
func (a *strictClaims) serve(b *buffer, p plan, grant Grant, c Claimed, start time.Time) error {
	now := time.Now()
	var served []*waiter
	defer func() { // after the lock was released
		for _, w := range served {
			w.Announce()
		}
	}()
	b.mu.Lock()
	defer b.mu.Unlock()
	a.governLocked(b, grant.Stored.Rules, true)
	if grant.First < b.floor || grant.Last >= b.rulesLocked().end() { // an operator moved max_id or the limit meanwhile
		return errDiscarded
	}
	// A write that lands late, in records that were set back meanwhile, may find the revision that
	// it names once more.
	own := c.PassedTo == "" && !p.sent.IsZero()
	if own && a.contestedLocked(b, grant.Range) {
		return errDiscarded
	}
	a.becomeStrictLocked(b)
	a.ending(grant)
	a.recoveredLocked(b)
	b.floor = grant.Last + 1
	next := grant.First
	for w := range b.waiters.all() {
		if w.number >= p.before || w.n > grant.Last-next+1 {
			break
		}
		c.Requests++
		b.leaveLocked(w, false)
		w.EndLocked([]Range{{First: next, Last: next + w.n - 1}}, nil)
		next += w.n
		served = append(served, w)
	}
	b.taken += next - grant.First
	if !p.sent.IsZero() {
		b.strict.took = now.Sub(p.sent)
	}
	if now.Sub(b.refilled) >= time.Second {
		b.refilledBefore, b.refilled = b.refilled, now
		b.takenBefore, b.takenAt = b.takenAt, b.taken
	}
	c.Range, c.Elapsed = grant.Range, now.Sub(start)
	a.cfg.Notify(c)
	return nil
}

// becomeStrictLocked notes that the tag is strict.
func (m *memory) becomeStrictLocked(b *buffer) {
	if b.strict == nil {
		m.strictNames.Store(b.tag, true)
		b.strict = new(strict)
		b.stepper.rebase(1) // the tag exists
		// What memory has is from before the record was deleted by hand and made again in this
		// order.
		b.segments = nil
		m.alarms.recountLocked(b)
	}
}

// refusePeersLocked refuses the requests that were passed on to this generator, because it passes
// on its own from now on. Passed on again they could go round in a circle. Left in the queue they
// would wait for a generator that loses each race.
func (b *buffer) refusePeersLocked() {
	for w := range b.waiters.all() {
		if w.fromPeer {
			b.settleLocked(w, nil, passesOn(b.tag))
		}
	}
}

// passesOn is the error of a request of another generator that is refused because this one passes
// its own on.
func passesOn(tag string) error {
	return fmt.Errorf("%w: this generator passes requests for %s on, too", ErrConflict, idspace.Quote(tag))
}

// refuseFirst refuses the only request of a plan.
func (a *strictClaims) refuseFirst(b *buffer, p plan, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rulesLocked().Version != p.rules {
		return // as in exhaust
	}
	if w := b.waiters.first(); w != nil && w.number < p.before {
		b.settleLocked(w, nil, err)
	}
	b.exhausted = b.exhausted || p.need == 1 // no request can be served any more, and the store is not asked again
	a.recoveredLocked(b)
}

// RequestForPeer queues a request for n IDs of a strict tag that another generator has passed on.
// It is never passed on again. n may be the sum of many requests. Wait for the IDs with
// [Later.Wait]. The errors are those of [Allocator.Take], and ErrConflict if the tag is not strict
// as far as this generator knows, or if it passes on its own requests: generators that pass on to
// each other would all wait until their time is over.
func (a *Allocator) RequestForPeer(tag string, n int64) (*Later, error) {
	if n < 1 || n > LimitMaxBatch*LimitMaxWaiting {
		return nil, ErrBadCount
	}
	if a.Order(tag) != Strict {
		return nil, fmt.Errorf("%w: %s is not known as a strict tag here", ErrConflict, idspace.Quote(tag))
	}
	b, err := a.lockedOrNew(tag)
	if err != nil {
		return nil, err
	}
	if s := b.strict; s != nil && time.Now().Before(s.viaUntil) {
		b.mu.Unlock()
		return nil, passesOn(tag)
	}
	return a.queueAndUnlock(b, n, true)
}

// LastRun is the run that claimed IDs of a tag last, by a record that was read or heard a moment
// ago; empty: none was.
func (a *strictClaims) LastRun(tag string) string {
	s, _ := a.claims.latest.Get(tag)
	return s.Last.Run
}

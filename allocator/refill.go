package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// refills bring IDs into memory, at most one for each tag at a time:
//
//	refillLocked ── refill              while any is wanted
//	├── reserve                         one attempt
//	│   ├── ask                         by claims; mark
//	│   └── install                     push, compare with what was heard, memory
//	├── strictClaims.claim              of a strict tag
//	└── exhaust, paused, failed         without a range
//	loadAhead ── reserve                at a start
type refills struct {
	*memory
	*alarms
	*quotas
	claims     *claims
	strict     *strictClaims
	follower   *follower
	reserveIDs func(context.Context, string, plan, int64) (Grant, error) // of claims, but in tests

	failures    atomic.Int64   // attempts that failed
	marksFail   atomic.Bool    // the last mark could not be written
	slots       chan struct{}  // one for each write to the store, but for those of strictClaims
	lockedSlots chan struct{}  // one more for a tag whose record was locked, taken first
	wg          sync.WaitGroup // refills, and what Allocator.Run starts
}

// refillLocked starts a refill of b if one is wanted and none is under way.
func (a *refills) refillLocked(b *buffer) {
	if b.wake != nil || a.ctx.Err() != nil {
		return
	}
	if _, wanted := b.planLocked(time.Now(), a.cfg); wanted {
		b.beginRefillLocked()
		a.wg.Go(func() { a.refill(b) })
	}
}

// refill owns the tag of b until nothing is wanted any more: it reserves, checks and
// installs. After a failure it pauses and tries again, also if no request waits any more,
// so that the tag recovers by itself.
func (a *refills) refill(b *buffer) {
	attempt := 0 // failed ones in a row
	for {
		var err error
		b.mu.Lock()
		p, wanted := b.planLocked(time.Now(), a.cfg)
		if !wanted || b.gone || a.ctx.Err() != nil {
			if b.rulesLocked().Paused {
				a.recoveredLocked(b) // no refill would end the alerts of a tag that is paused
			}
			b.endRefillLocked()
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()

		if p.strict {
			err = a.strict.claim(b, min(firstClaim<<min(attempt, 10), lastClaim))
		} else {
			err = a.reserve(b, p)
		}
		switch {
		case err == nil:
			attempt = 0
		case a.ctx.Err() != nil: // the loop ends above
		case errors.Is(err, errDiscarded): // planned again
		case errors.Is(err, ErrUnknownTag):
			a.drop(b, fmt.Errorf("%s: %w", b.tag, err))
		case errors.Is(err, ErrExhausted):
			a.exhaust(b, p)
		case a.paused(b, err):
		default:
			wait := backoff(attempt)
			attempt++
			a.failed(b, err, wait)
			pause(a.ctx, wait, b.wake)
			if p.base == 0 {
				a.forgetUnknown(b)
			}
		}
	}
}

// acquire waits for one of the slots. The caller receives from slots to release it.
func (a *refills) acquire(slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}

// reserve makes one attempt at the plan. After a conflict with another generator it
// asks again, for as long as the attempt may take.
func (a *refills) reserve(b *buffer, p plan) error {
	if p.locked {
		if err := a.acquire(a.lockedSlots); err != nil {
			return err
		}
		defer func() { <-a.lockedSlots }()
	}
	if err := a.acquire(a.slots); err != nil {
		return err
	}
	defer func() { <-a.slots }()
	ctx, cancel := context.WithTimeout(a.ctx, attemptTimeout)
	defer cancel()
	start := time.Now()
	for wait := firstRace; ; wait = min(2*wait, lastRace) {
		b.mu.Lock()
		b.heard = nil
		b.mu.Unlock()
		p.sent = time.Now()
		grant, err := a.ask(ctx, b.tag, p)
		switch {
		case err == nil && grant.Stored.Order == Strict: // learned just now
			return a.strict.serve(b, p, grant, Claimed{Tag: b.tag}, start)
		case err == nil:
			return a.install(b, p, grant, time.Since(start))
		case !errors.Is(err, ErrConflict):
			return err
		}
		if _, ok := errors.AsType[*OvertakenError](err); ok { // the tag is strict: claim does more about conflicts
			b.mu.Lock()
			a.becomeStrictLocked(b)
			b.mu.Unlock()
			return nil
		}
		if moved, ok := errors.AsType[*AdvancedError](err); ok {
			a.advanced(b, moved)
		}
		if !pause(ctx, rand.N(wait), nil) {
			return err
		}
	}
}

// ask sends one request to the store, and checks its answer.
func (a *refills) ask(ctx context.Context, tag string, p plan) (Grant, error) {
	// The order is the point: what was seen before the request must lie below its
	// answer. What is seen later may lie above. So each request reads it again.
	seen := a.Seen(tag)
	grant, err := a.reserveIDs(ctx, tag, p, seen)
	if errors.Is(err, ErrUnknownTag) || errors.Is(err, ErrUnavailable) {
		if why := a.cfg.Starting(); why != nil { // it says more
			err = fmt.Errorf("%w: %w", ErrUnavailable, why)
		}
	}
	if err != nil {
		return Grant{}, err
	}
	if err := grant.check(seen); err != nil {
		return Grant{}, err
	}
	if grant.Stored.Order != Strict { // its record alone counts, and a line for each claim would be slow
		a.mark(tag, grant.Last+1)
	}
	return grant, nil
}

// advanced notes that the store went backwards and was moved up again.
func (a *refills) advanced(b *buffer, moved *AdvancedError) {
	a.cfg.Log.Warn("the store went backwards: max_id is moved up, and service goes on",
		"tag", moved.Tag, "was", moved.Got, "now", moved.Seen)
	b.mu.Lock()
	defer b.mu.Unlock()
	a.regressedLocked(b, Regressed{Tag: moved.Tag, Got: moved.Got, Seen: moved.Seen, Action: Advanced})
}

// mark records how far the tag was reserved. A disk that fails or hangs makes the check
// of the store weaker. The refill goes on, and the fault is logged once.
func (a *refills) mark(tag string, end int64) {
	err := a.cfg.Index.Record(tag, end)
	switch failed := err != nil; {
	case a.marksFail.Swap(failed) == failed:
	case failed:
		a.cfg.Log.Warn("high-water marks cannot be written: a store that goes backwards may stay unnoticed after a restart",
			"tag", tag, "error", err)
	default:
		a.cfg.Log.Info("high-water marks are written again")
	}
}

// errDiscarded: another generator holds the range too, an operator has moved max_id above it, or
// the tag has become strict meanwhile. The refill plans again.
var errDiscarded = errors.New("the range must not be handed out: it is dropped")

// install reports a grant to the other generators, takes it into memory, and ends the episodes
// that a refill ends. The error is errDiscarded.
func (a *refills) install(b *buffer, p plan, grant Grant, elapsed time.Duration) error {
	a.cfg.Index.note(grant.Stored, false)
	a.cfg.Push(grant.Stored)

	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.strict != nil || a.contestedLocked(b, grant.Range) {
		return errDiscarded
	}
	a.governLocked(b, grant.Stored.Rules, true)
	b.stepper.rebase(grant.Step)
	// Another generator has learnt it, or this one before its restart.
	if learnt := grant.Stored.Last.Step; p.base == 0 && learnt > grant.Step {
		p.base, p.step = grant.Step, learnt
		b.stepper.step = p.step
	}
	cause := p.cause(grant.Step)
	if cause != CauseBatch { // a request larger than a step does not show how long steps last
		if p.base != b.stepper.base {
			p.step = b.stepper.base // adapted from a step that an operator has changed since
		}
		b.stepper.loaded(now, p.step)
	}
	a.cfg.Notify(Refilled{Tag: b.tag, Range: grant.Range, Step: b.stepper.step, Cause: cause, Elapsed: elapsed})
	a.ending(grant)
	a.recoveredLocked(b)
	b.refilledBefore, b.refilled = b.refilled, now
	b.takenBefore, b.takenAt = b.takenAt, b.taken
	b.installLocked(grant.Range)
	a.recountLocked(b)
	return nil
}

// contestedLocked reports whether another run has claimed a part of a range since the store was
// asked for it: pushed or watched until this moment, at which the range would come into memory.
func (a *refills) contestedLocked(b *buffer, own Range) bool {
	i := slices.IndexFunc(b.heard, own.Overlaps)
	if i >= 0 {
		a.heldTwiceLocked(b, own, b.heard[i])
	}
	return i >= 0
}

// exhaust notes that the store has no IDs left: it works, and is not asked again. The last IDs are
// for the requests that they are enough for, now or later. An operator who has changed the rules
// since the store was asked may have raised the limit. Then the refill plans again.
func (a *refills) exhaust(b *buffer, p plan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rulesLocked().Version != p.rules {
		return
	}
	b.exhausted = true
	for w := range b.waiters.all() {
		if w.n > b.leftLocked() {
			b.settleLocked(w, nil, b.exhaustedLocked(w.n))
		} else {
			b.giveLocked(w)
		}
	}
	a.recoveredLocked(b)
}

// exhaustedLocked is the error of a request for more IDs than the tag has left.
func (b *buffer) exhaustedLocked(n int64) error {
	return fmt.Errorf("%w: %d IDs of %s are left here, and the request is for %d", ErrExhausted, b.leftLocked(), b.tag, n)
}

// paused reports whether the store refused because the tag is paused, and applies the rules that it
// named. If newer ones are known by which the tag is not paused, the store has an old record, and
// the refill has failed.
func (a *refills) paused(b *buffer, err error) bool {
	refused, ok := errors.AsType[*PausedError](err)
	if !ok {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.governLocked(b, refused.Rules, true)
	return b.rulesLocked().Paused
}

// ending reports that 80 % of the tag's IDs are reserved.
func (a *refills) ending(g Grant) {
	if g.Ending {
		a.cfg.Notify(g.Stored.NewEnding())
	}
}

// failed notes that an attempt failed and when the next is due.
func (a *refills) failed(b *buffer, err error, wait time.Duration) {
	a.failures.Add(1)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		b.failure = &failure{since: now}
	}
	if !b.alerts[refillFailed] && a.mayAlertLocked(b) {
		b.alerts[refillFailed] = true
		a.cfg.Notify(RefillFailed{Tag: b.tag, Err: err, Left: b.leftLocked()})
	}
	b.failure.err, b.failure.retryAt = err, now.Add(wait)
	a.recountLocked(b)
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) { // not soon over
		b.refuseLocked(&UnavailableError{Err: err, RetryAfter: wait})
	}
}

// forgetUnknown drops b if it was never loaded, no request waits for it, and too many tags
// fail. Callers can ask for any name while the store is away.
func (a *refills) forgetUnknown(b *buffer) {
	a.dropIf(b, func() bool {
		return a.Failing().Tags > maxUnknown && b.stepper.base == 0 && b.waiters.Len() == 0
	})
}

// backoff is the pause after so many failures before this one: doubled from
// firstPause to lastPause, of which at least half.
func backoff(attempt int) time.Duration {
	d := min(firstPause<<min(attempt, 10), lastPause)
	return d/2 + rand.N(d/2)
}

// pause waits for d, or until wake can be read. It reports false when the context is done.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-wake:
	}
	return ctx.Err() == nil
}

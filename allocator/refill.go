package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// claimLocked reports whether the caller must start a refill of b, and marks b
// as being refilled if so.
func (a *Allocator) claimLocked(b *buffer) bool {
	if b.loading {
		return false
	}
	if _, wanted := b.planLocked(time.Now(), a.cfg.MaxStep); !wanted {
		return false
	}
	b.ownLocked()
	return true
}

// startRefill starts the refill that claimLocked called for. The lock of b
// must not be held.
func (a *Allocator) startRefill(b *buffer) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		return // Run refuses the waiters
	}
	a.wg.Go(func() { a.refill(b) })
}

// refill owns the tag of b until nothing is wanted any more: it reserves,
// checks, installs; on failure it pauses and tries again, whether or not
// anybody still waits, so that the tag recovers by itself.
func (a *Allocator) refill(b *buffer) {
	attempt := 0 // failed ones in a row
	for {
		b.mu.Lock()
		p, wanted := b.planLocked(time.Now(), a.cfg.MaxStep)
		if !wanted || b.gone || a.ctx.Err() != nil {
			b.disownLocked()
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()

		err := a.reserve(b, p)
		regressed, isRegressed := errors.AsType[*RegressedError](err)
		switch {
		case err == nil:
			attempt = 0
		case a.ctx.Err() != nil: // the loop ends above
		case errors.Is(err, errRecalled): // planned anew
		case errors.Is(err, ErrUnknownTag):
			a.drop(b, fmt.Errorf("%s: %w", b.tag, err))
		case errors.Is(err, ErrExhausted):
			a.exhaust(b, err)
		case isRegressed:
			a.sitOut(b, regressed)
		default:
			wait := backoff(attempt)
			attempt++
			a.failed(b, err, wait)
			pause(a.ctx, wait, b.wake)
			if p.base == 0 {
				a.forgetStranger(b)
			}
		}
	}
}

// place waits for a place among those that may call the store, and returns what
// gives it back.
func (a *Allocator) place(places chan struct{}) (free func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-a.ctx.Done():
		return nil, a.ctx.Err()
	}
}

// reserve makes one attempt at the plan. Where other generators are ahead, it
// asks again, for as long as the attempt may take.
func (a *Allocator) reserve(b *buffer, p plan) error {
	if p.locked {
		free, err := a.place(a.locked)
		if err != nil {
			return err
		}
		defer free()
	}
	free, err := a.place(a.slots)
	if err != nil {
		return err
	}
	defer free()
	ctx, cancel := context.WithTimeout(a.ctx, attemptTimeout)
	defer cancel()
	start := time.Now()
	for n, wait := p.n, firstRace; ; wait = min(2*wait, lastRace) {
		grant, err := a.ask(ctx, b, p, n)
		switch {
		case err == nil:
			return a.install(b, p, grant, time.Since(start))
		case errors.Is(err, ErrExhausted) && n > 1:
			n = 1 // the last ones
			continue
		case !errors.Is(err, ErrConflict):
			return err
		}
		if !pause(ctx, rand.N(wait), nil) {
			return err
		}
	}
}

// errRecalled: the tag vanished while its range was under way. If it is created
// again, that may be below the range.
var errRecalled = errors.New("the tag vanished meanwhile: the range is given up")

// ask asks the store once, and checks its answer.
func (a *Allocator) ask(ctx context.Context, b *buffer, p plan, n int64) (Grant, error) {
	// The order is the point: what was seen before the store was asked must lie
	// below what it answers. What is seen later may well lie above. So this is
	// done anew each time that the store is asked.
	held, err := a.cfg.Evidence(ctx)
	if err != nil {
		return Grant{}, err
	}
	tag, seen := b.tag, a.Seen(b.tag)
	grant, err := a.cfg.Store.Reserve(ctx, tag, n)
	switch {
	case err != nil:
		return Grant{}, err
	case b.recalled(p.recalls):
		return Grant{}, errRecalled
	case !held():
		return Grant{}, errors.New("what others reserved was not heard all the while: the range is given up")
	case grant.First < 1 || grant.Last < grant.First || grant.Step < 1:
		return Grant{}, fmt.Errorf("the store answered nonsense: range %d to %d, step %d", grant.First, grant.Last, grant.Step)
	case grant.First < seen:
		return Grant{}, &RegressedError{Tag: tag, Got: grant.First, Seen: seen}
	}
	a.mark(tag, grant.Last+1)
	return grant, nil
}

// mark records how far the tag was reserved. A disk that fails or hangs makes the check
// of the store weaker. The refill goes on, and the fault is logged once.
func (a *Allocator) mark(tag string, end int64) {
	err := a.cfg.Marks.Record(tag, end)
	switch failed := err != nil; {
	case a.unmarked.Swap(failed) == failed:
	case failed:
		a.cfg.Log.Warn("high-water marks cannot be written: a restart may not notice a store that went backwards meanwhile", "tag", tag, "error", err)
	default:
		a.cfg.Log.Info("high-water marks are written again")
	}
}

// install takes a grant into memory and ends the episodes that it ends. The
// error is errRecalled.
func (a *Allocator) install(b *buffer, p plan, grant Grant, elapsed time.Duration) error {
	now := time.Now()
	cause := p.cause(grant.Step)

	b.mu.Lock()
	if b.recalls != p.recalls {
		b.mu.Unlock()
		return errRecalled
	}
	b.stepper.rebase(grant.Step)
	if cause != CauseBatch {
		// A request larger than a step tells nothing about how long steps last.
		if p.base != b.stepper.base {
			p.step = b.stepper.base // adapted from a step that an operator has changed since
		}
		b.stepper.loaded(now, p.step)
	}
	refilled := Refilled{Tag: b.tag, Range: grant.Range, Step: b.stepper.step, Cause: cause, Elapsed: elapsed}
	a.refills.Add(1)
	a.cfg.Notify(refilled)
	a.recoveredLocked(b)
	b.refilledBefore, b.refilled = b.refilled, now
	b.takenBefore, b.takenAt = b.takenAt, b.taken
	b.installLocked(grant.Range)
	a.tallyLocked(b)
	b.mu.Unlock()
	return nil
}

// exhaust notes that the store has no IDs left: it works, and is not asked again.
func (a *Allocator) exhaust(b *buffer, err error) {
	b.mu.Lock()
	b.exhausted = true
	b.refuseLocked(err)
	a.recoveredLocked(b)
	b.mu.Unlock()
}

// failed notes that an attempt failed and when the next is due.
func (a *Allocator) failed(b *buffer, err error, wait time.Duration) {
	a.failures.Add(1)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		b.failure = &failure{since: now, refills: a.refills.Load()}
	}
	if !b.failure.told && a.tellsLocked(b) {
		b.failure.told = true
		a.cfg.Notify(RefillFailed{Tag: b.tag, Err: err, Left: b.left})
	}
	b.failure.err, b.failure.retryAt = err, now.Add(wait)
	a.tallyLocked(b)
	if errors.Is(err, ErrDamaged) { // not soon over
		b.refuseLocked(&UnavailableError{Err: err, RetryAfter: wait})
	}
}

// forgetStranger drops b if it is of a tag that was never loaded and for which
// nobody waits, one of so many that fail that it need not be remembered: callers
// may ask for any name while the store, which would know, is away.
func (a *Allocator) forgetStranger(b *buffer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.Failing().Tags > maxStrangers && b.stepper.base == 0 && b.waiters.n == 0 {
		a.dropLocked(b)
	}
}

// sitOut waits until an operator has moved max_id to what was seen, or beyond.
// Nothing is reserved meanwhile: each attempt would move max_id by a step, and
// in the end IDs would be served although nobody had looked into what happened.
func (a *Allocator) sitOut(b *buffer, regressed *RegressedError) {
	b.mu.Lock()
	b.regressed = regressed
	b.refuseLocked(regressed)
	a.recoveredLocked(b)
	a.cfg.Notify(Regressed{Tag: b.tag, Got: regressed.Got, Seen: regressed.Seen})
	b.mu.Unlock()
	defer a.regressed.Add(-1)
	if a.regressed.Add(1) <= maxStrange { // of a whole table the alerts tell
		a.cfg.Log.Error("nothing is reserved of a tag until an operator has looked", "tag", b.tag, "error", regressed)
	}

	for pause(a.ctx, regressedPause/2+rand.N(regressedPause), b.wake) {
		// Asked for too: the watch may have gone blind with the store.
		ctx, cancel := context.WithTimeout(a.ctx, attemptTimeout)
		tag, err := a.get(ctx, b.tag)
		cancel()
		if errors.Is(err, ErrUnknownTag) {
			a.cfg.Notify(Recovered{b.tag, "regressed"}) // before another buffer may have its place
			a.drop(b, err)
			return
		}
		b.mu.Lock()
		if err == nil {
			b.raiseFloorLocked(tag.Floor)
			a.tallyLocked(b)
			b.forgiveLocked(tag)
		}
		over := b.regressed == nil
		if over {
			a.cfg.Notify(Recovered{b.tag, "regressed"})
		}
		b.mu.Unlock()
		if over {
			return
		}
	}
}

func (a *Allocator) get(ctx context.Context, tag string) (Tag, error) {
	free, err := a.place(a.slots)
	if err != nil {
		return Tag{}, err
	}
	defer free()
	return a.cfg.Store.Get(ctx, tag)
}

// backoff is the pause after so many failures before this one: doubled from
// firstPause to lastPause, of which at least half.
func backoff(attempt int) time.Duration {
	d := min(firstPause<<min(attempt, 10), lastPause)
	return d/2 + rand.N(d/2)
}

// pause waits for d, or until wake can be read. It reports false when the
// context is done.
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

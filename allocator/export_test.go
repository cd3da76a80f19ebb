package allocator

import (
	"context"
	"fmt"
)

// EvictIdle evicts what may be evicted, as if all tags had been idle for a day.
func (a *Allocator) EvictIdle() {
	for _, b := range a.all() {
		a.evict(b)
	}
}

// Heard is how many reports about a tag wait for the store's answer.
func (a *Allocator) Heard(tag string) int {
	b := a.lockedBuffer(tag)
	defer b.mu.Unlock()
	return len(b.heard)
}

// CheckTroubles compares the counts behind [Allocator.Failing] with those of all tags.
func (a *Allocator) CheckTroubles() error {
	var lengths [kindsOfTrouble]int
	haveIDs := 0
	for _, b := range a.all() { // all are held at once, so that nothing changes meanwhile
		b.mu.Lock()
		defer b.mu.Unlock()
		if kind := b.troubleLocked(); kind != noTrouble {
			lengths[kind]++
		}
		if b.leftLocked() > 0 {
			haveIDs++
		}
	}
	t := &a.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	lengths[noTrouble] = t.tags[noTrouble]
	for kind, want := range lengths {
		if got := t.tags[kind]; got != want {
			return fmt.Errorf("%d tags have trouble %d, want %d", got, kind, want)
		}
	}
	if t.haveIDs != haveIDs {
		return fmt.Errorf("%d tags have IDs, want %d", t.haveIDs, haveIDs)
	}
	return nil
}

// Around lets f stand around each reservation: it calls reserve, or not.
func (a *Allocator) Around(f func(ctx context.Context, tag string, n int64, reserve func() (Grant, error)) (Grant, error)) {
	inner := a.reserveIDs
	a.reserveIDs = func(ctx context.Context, tag string, want plan, from int64) (Grant, error) {
		return f(ctx, tag, max(want.n, want.need), func() (Grant, error) { return inner(ctx, tag, want, from) })
	}
}

// Reserve makes one attempt at a claim of at least n IDs, as a refill does.
func (a *Allocator) Reserve(ctx context.Context, tag string, n int64) (Grant, error) {
	return a.ask(ctx, tag, plan{need: n, n: n, step: 7, base: 1})
}

// Heals is how many records wait to be raised.
func (a *Allocator) Heals() int {
	a.heals.mu.Lock()
	defer a.heals.mu.Unlock()
	return len(a.heals.names)
}

// Check is an error for a range that no store may return.
func (g Grant) Check(from int64) error { return g.check(from) }

package allocator

import (
	"errors"
	"sync/atomic"
	"time"
)

const (
	// recentFor is how long ago a range of a tag may have been claimed for a start to load the tag
	// ahead.
	recentFor = 24 * time.Hour
	// sweepEvery is how often the tags leave memory that were not used since the last time. A tag
	// that is used once a day, by a job at night say, keeps its step.
	sweepEvery = 25 * time.Hour
	// mostAhead is how many tags are loaded ahead: those that were used last.
	mostAhead = 100_000
	// aheadAtOnce bounds the tags that are loaded ahead at a time. Refills for which
	// requests wait have most of maxRefills to themselves.
	aheadAtOnce = 4
	// aheadFailures in a row end it: a store that is away is not asked for every tag.
	aheadFailures = 8
)

// keepMemory loads the tags of the last day ahead. Then it sweeps until the allocator is closed.
func (a *Allocator) keepMemory() {
	if a.cfg.LoadAhead && a.cfg.Records.Sync(a.ctx) == nil { // else the index does not have the tags
		a.loadAhead(a.cfg.Index.recent(time.Now().Add(-recentFor)))
	}
	for pause(a.ctx, sweepEvery, nil) {
		a.sweep()
	}
}

// sweep evicts the tags that were not used since the last sweep.
func (m *memory) sweep() {
	for _, b := range m.all() {
		b.mu.Lock()
		idle := b.taken == b.swept
		b.swept = b.taken
		b.mu.Unlock()
		if idle {
			m.evict(b)
		}
	}
}

// evict drops b with the IDs that it has: they become a gap, and the next request loads the
// tag again. What the checks of the store need stays in the marks. A tag stays while a
// request or a refill is under way, and until its alerts are over.
func (m *memory) evict(b *buffer) {
	m.dropIf(b, func() bool { return b.wake == nil && b.waiters.Len() == 0 && b.failure == nil })
}

// loadAhead reserves one segment for each of the tags that was never loaded, a
// few at a time and in their order. It tries once and reports no failures, because no
// request waits: one that comes starts a refill.
//
// That is a claim, too. So each start within a day of the last one costs a tag that is not used a
// segment, and later ones cost none.
func (a *refills) loadAhead(tags []string) {
	slots := make(chan struct{}, aheadAtOnce)
	var failures atomic.Int64 // in a row
	for _, tag := range tags[:min(len(tags), mostAhead)] {
		if a.cfg.Pace != nil {
			a.cfg.Pace(a.ctx)
		}
		if a.acquire(slots) != nil || failures.Load() >= aheadFailures {
			return
		}
		b, p := a.claimAhead(tag)
		if b == nil {
			<-slots
			continue
		}
		a.wg.Go(func() {
			err := a.reserve(b, p)
			switch {
			case err == nil, errors.Is(err, errDiscarded), errors.Is(err, ErrUnknownTag), errors.Is(err, ErrExhausted),
				errors.Is(err, ErrPaused), errors.Is(err, ErrDamaged), errors.Is(err, ErrNewer), errors.Is(err, ErrLocked):
				failures.Store(0)
			case failures.Add(1) == aheadFailures:
				a.cfg.Log.Warn("the store fails: no more tags are loaded ahead", "error", err)
			}
			<-slots
			a.refill(b) // for the requests that came meanwhile; without any, that ends at once
			if err != nil {
				a.forget(b)
			}
		})
	}
}

// claimAhead returns the buffer of a tag that was never loaded, which the caller
// then owns as a refill does, and what to reserve; nil if nothing.
func (a *refills) claimAhead(tag string) (*buffer, plan) {
	b, err := a.lockedOrNew(tag)
	if err != nil {
		return nil, plan{} // closed
	}
	defer b.mu.Unlock()
	if b.wake != nil || !b.refilled.IsZero() {
		return nil, plan{}
	}
	b.beginRefillLocked()
	return b, plan{n: 1, need: 1} // the store reserves the tag's step, or one that was learnt
}

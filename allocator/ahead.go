package allocator

import (
	"errors"
	"sync/atomic"
)

const (
	// aheadAtOnce bounds the tags that are loaded ahead at a time: refills that
	// requests wait for have most of maxRefills to themselves.
	aheadAtOnce = 4
	// aheadFailures in a row end it: a store that is away is not asked for every tag.
	aheadFailures = 8
)

// loadAhead reserves one segment for each of the tags that was never loaded, a
// few at a time and in their order. It is tried once and nobody is told of
// failures, for nobody asked: who wants IDs of the tag starts a refill as ever.
//
// A tag that is not used then keeps its old time, so each start within the day
// costs it a segment, and after that none.
func (a *Allocator) loadAhead(tags []string) {
	places := make(chan struct{}, aheadAtOnce)
	var failures atomic.Int64 // in a row
	for _, tag := range tags {
		select {
		case places <- struct{}{}:
		case <-a.ctx.Done():
			return
		}
		if failures.Load() >= aheadFailures {
			return
		}
		b, p := a.claimAhead(tag)
		if b == nil {
			<-places
			continue
		}
		a.wg.Go(func() {
			err := a.reserve(b, p)
			switch {
			case errors.Is(err, ErrUnknownTag):
				a.recent.forget(tag)
				failures.Store(0)
			case err == nil, errors.Is(err, ErrExhausted), errors.Is(err, ErrDamaged), errors.Is(err, ErrLocked), errors.Is(err, errRecalled):
				failures.Store(0)
			case failures.Add(1) == aheadFailures:
				a.cfg.Log.Warn("the store fails: no more tags are loaded ahead", "error", err)
			}
			<-places
			a.endAhead(b, err)
		})
	}
}

// claimAhead returns the buffer of a tag that was never loaded, which the caller
// then owns as a refill does, and what to reserve; nil if nothing.
func (a *Allocator) claimAhead(tag string) (*buffer, plan) {
	b, err := a.buffer(tag)
	if err != nil {
		return nil, plan{} // closed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.loading || !b.refilled.IsZero() {
		return nil, plan{}
	}
	b.ownLocked()
	return b, plan{n: 1, recalls: b.recalls} // the store makes it the tag's step
}

// endAhead goes on as a refill does, for the requests that have queued
// meanwhile; without any, that ends at once.
func (a *Allocator) endAhead(b *buffer, err error) {
	if regressed, ok := errors.AsType[*RegressedError](err); ok {
		a.sitOut(b, regressed)
	}
	a.refill(b)
	if err != nil {
		a.forget(b)
	}
}

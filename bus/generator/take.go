package generator

import (
	"context"
	"errors"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// take takes IDs for a caller in this process, which may wait. An error is a
// *[bus.Error], or the context's.
func (s *service) take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	a := newAnswer(s.kind, HTTP)
	a.Tag = tag
	// Before the generator serves, it does not hear yet what its peers reserve. And a generator that
	// does not belong here must not serve its buffer.
	if !s.phase.await(ctx) {
		return nil, s.counts.refused(a, s.starting)
	}
	if s.concealer.isLarge(tag, n) && s.concealer.full(n) {
		return nil, s.counts.refused(a, allocator.ErrOverloaded)
	}
	ranges, later, err := s.request(a, tag, n)
	if later != nil {
		a.Waited = true
		s.requests.do(func() { ranges, err = s.wait(ctx, a, n, later) })
	}
	if err != nil && ctx.Err() == nil && lacksIDs(err) {
		if borrowed, ok := s.borrow(a, tag, n); ok {
			s.borrowed(tag, n)
			ranges, err = borrowed, nil
		}
	}
	if err == nil {
		ranges, err = s.concealer.concealFor(ctx, tag, n, ranges)
	}
	switch {
	case err == nil:
		s.counts.served(a, n)
		return ranges, nil
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		a.Reason = Canceled
		s.counts.observe(a)
		return nil, err
	default:
		return nil, s.counts.refused(a, err)
	}
}

// wait returns what a request gets that waits.
func (s *service) wait(ctx context.Context, a Answer, n int64, later *allocator.Later) (ranges []bus.Range, err error) {
	done := make(chan struct{})
	s.await(a, n, later, func(r []bus.Range, e error) {
		ranges, err = r, e
		close(done)
	})
	select {
	case <-done:
	case <-ctx.Done():
		later.Cancel(context.Cause(ctx))
		<-done
	}
	return ranges, err
}

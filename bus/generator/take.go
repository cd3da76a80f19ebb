package generator

import (
	"context"
	"errors"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// take takes IDs for a caller in this process, which may wait. An error is a
// *[bus.Error], or the context's.
func (s *service) take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	a := s.g.answer(s.kind, HTTP)
	a.Tag = tag
	// Before the generator serves, it does not hear yet what its peers reserve. And a generator that
	// does not belong here must not serve its buffer.
	if !s.g.awaitServing(ctx) {
		return nil, s.g.refused(a, s.starting)
	}
	if s.g.concealer.isLarge(tag, n) && s.g.concealer.full(n) {
		return nil, s.g.refused(a, allocator.ErrOverloaded)
	}
	ranges, later, err := s.request(a, tag, n)
	if later != nil {
		a.Waited = true
		s.g.requests.do(func() { ranges, err = s.wait(ctx, a, n, later) })
	}
	if err != nil && ctx.Err() == nil && lacksIDs(err) {
		if borrowed, ok := s.borrow(a, tag, n); ok {
			s.borrowed(tag, n)
			ranges, err = borrowed, nil
		}
	}
	if err == nil {
		ranges, err = s.g.concealer.concealFor(ctx, tag, n, ranges)
	}
	switch {
	case err == nil:
		s.g.served(a, n)
		return ranges, nil
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		a.Reason = Canceled
		s.g.observe(a)
		return nil, err
	default:
		return nil, s.g.refused(a, err)
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

// startPatience is how long a caller in this process waits while the generator starts: less than the 2 s that callers
// usually wait.
const startPatience = time.Second

// awaitServing waits while the generator starts.
func (g *Generator) awaitServing(ctx context.Context) bool {
	if g.phase.serving.Load() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	select {
	case <-g.phase.begun:
	case <-ctx.Done():
	}
	return g.phase.serving.Load() // not if Run has failed
}

// Take returns n IDs of tag as leaf.segment.<tag> does, for the HTTP server in the generator's
// process. It waits for them if it must. An error is a *[bus.Error], or the context's.
func (g *Generator) Take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	return g.segments.take(ctx, tag, n)
}

// Order returns the order of a tag whose IDs this generator has handed out; of other tags it may not know it.
func (g *Generator) Order(tag string) allocator.Order { return g.alloc.Order(tag) }

// Snowflakes returns n snowflakes as leaf.snowflake does. Otherwise it is like Take.
func (g *Generator) Snowflakes(ctx context.Context, n int64) ([]bus.Range, error) {
	return g.snowflakes.take(ctx, "", n)
}

// Initialised reports whether the store has been opened, and the tags of the start exist.
func (g *Generator) Initialised() bool { return g.phase.prepared.Load() }

// Wanted reports whether requests of a kind should come to this generator, as service does for
// NATS: it can answer them with IDs, or hears of no other generator that can.
func (g *Generator) Wanted(kind Kind) bool {
	s := g.segments
	if kind == SnowflakeKind {
		s = g.snowflakes
	}
	if !g.phase.serving.Load() || g.phase.draining.Load() {
		return false
	}
	if s.healthy() == nil {
		return true
	}
	return g.hears() && !g.group.anyPeer(time.Now(), time.Time{}, s.offers) // a generator that is cut off hears no peer
}

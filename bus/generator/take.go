package generator

import (
	"context"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

// outcome is the answer to a request in this process. err is a *[bus.Error], or the context's.
type outcome struct {
	ids []bus.Range
	err error
}

// take takes IDs for a caller in this process, which may wait.
func (s *service) take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	got := make(chan outcome, 1)
	c := call{Answer: newAnswer(s.kind, HTTP), req: wire.Request{Count: n}, ctx: ctx, got: got}
	c.Tag = tag
	switch {
	// Before the generator serves, it does not hear yet what its peers reserve. And a generator that does not belong
	// here must not serve its buffer.
	case !s.phase.await(ctx):
		s.refuse(c, s.starting)
	case s.concealer.isLarge(tag, n) && s.concealer.full(n):
		s.refuse(c, allocator.ErrOverloaded)
	default:
		s.begin(c)
	}
	is := <-got
	return is.ids, is.err
}

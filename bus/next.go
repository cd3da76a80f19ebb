package bus

import (
	"context"
	"sync"
	"sync/atomic"
)

// Next returns one ID of tag. Callers that come while a request is under way share the next
// one, as transactions share a write in a group commit: nothing is fetched ahead, and a
// thousand callers make few requests. Each caller's context counts for
// itself, and a request is given up when all who wait for it have gone. Errors are those of Take.
//
// [Pool] answers faster, from IDs that were fetched ahead.
func (c *Client) Next(ctx context.Context, tag string) (int64, error) {
	s, err := c.tag(tag)
	if err != nil {
		return 0, err
	}
	return c.next(ctx, s)
}

// NextSnowflake returns one snowflake, as Next does an ID of a tag.
func (c *Client) NextSnowflake(ctx context.Context) (int64, error) {
	return c.next(ctx, c.snowflakes())
}

func (c *Client) next(ctx context.Context, s *source) (int64, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	g, b := c.groups.join(s)
	select {
	case <-b.done:
	case <-ctx.Done():
		if c.groups.leave(g, b) {
			return 0, g.gaveUp(ctx)
		}
	}
	return b.one()
}

// groups are the callers that wait for one ID each, by subject.
type groups struct {
	mu sync.Mutex
	of map[string]*group // those with a request under way
}

// group is the callers of one subject. Its batches are served one at a time.
type group struct {
	*source
	waiting *batch // for the next request; nil: nobody
}

// batch is callers that are served by one request.
type batch struct {
	callers int // that are still here; under the lock of groups
	ctx     context.Context
	cancel  context.CancelFunc // when none is

	// Set before done is closed, and as many as there are callers then, unless there is an error.
	done  chan struct{}
	ids   []Range
	err   error
	taken atomic.Int64 // of ids
}

// join adds a caller to the next batch of its subject, and sees to it that
// somebody serves it.
func (gs *groups) join(s *source) (*group, *batch) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.of[s.subject]
	if g == nil {
		if gs.of == nil {
			gs.of = make(map[string]*group)
		}
		g = &group{source: s}
		gs.of[s.subject] = g
		defer func() { go gs.serve(g) }()
	}
	b := g.waiting
	if b == nil {
		b = &batch{done: make(chan struct{})}
		b.ctx, b.cancel = context.WithCancel(context.Background())
		g.waiting = b
	}
	b.callers++
	return g, b
}

// leave takes a caller out of its batch. It reports false if the batch was
// answered first: then the caller's ID is in it.
func (gs *groups) leave(g *group, b *batch) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	select {
	case <-b.done:
		return false
	default:
	}
	b.callers--
	if b.callers == 0 {
		b.cancel()
		if g.waiting == b {
			g.waiting = nil
		}
	}
	return true
}

// serve answers the batches of a group until nobody waits.
func (gs *groups) serve(g *group) {
	var spare []Range // of callers that left when they had been asked for
	for {
		gs.mu.Lock()
		b := g.waiting
		if b == nil {
			delete(gs.of, g.subject)
			gs.mu.Unlock()
			return
		}
		g.waiting = nil
		n := int64(b.callers)
		gs.mu.Unlock()

		ids, err := spare, error(nil)
		for need := n - total(ids); need > 0 && err == nil; need = n - total(ids) {
			var more []Range
			more, _, err = g.some(b.ctx, need)
			ids = append(ids, more...)
		}

		gs.mu.Lock()
		b.ids, spare = cut(ids, int64(b.callers))
		b.err = err
		close(b.done)
		gs.mu.Unlock()
		b.cancel()
	}
}

// one is a caller's ID.
func (b *batch) one() (int64, error) {
	i := b.taken.Add(1) - 1
	for _, r := range b.ids {
		if i < r.Len() {
			return r.First + i, nil
		}
		i -= r.Len()
	}
	return 0, b.err
}

// cut parts ranges after n IDs.
func cut(ranges []Range, n int64) (head, tail []Range) {
	for i, r := range ranges {
		switch {
		case n >= r.Len():
			n -= r.Len()
		case n == 0:
			return ranges[:i:i], ranges[i:]
		default:
			at := r.First + n
			return append(ranges[:i:i], Range{First: r.First, Last: at - 1}), append([]Range{{First: at, Last: r.Last}}, ranges[i+1:]...)
		}
	}
	return ranges, nil
}

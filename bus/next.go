package bus

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Next returns one ID of tag. Callers that come while a request is under way share the next
// one, as transactions share a write in a group commit: nothing is fetched ahead, and a
// thousand callers make few requests. Each caller's context counts for
// itself, and a request is given up when all who wait for it have gone. Where an answer is lost, those who
// came later wait, too, until it is asked for again, a second after it was. Errors are those of Take.
//
// [Pool] answers faster, from IDs that were fetched ahead.
func (c *Client) Next(ctx context.Context, tag string) (int64, error) {
	return c.next(ctx, &c.tagGroups, tag, func() (*source, error) { return c.tag(tag) })
}

// NextSnowflake returns one snowflake, as Next does an ID of a tag.
func (c *Client) NextSnowflake(ctx context.Context) (int64, error) {
	return c.next(ctx, &c.flakeGroups, "", func() (*source, error) { return c.snowflakes(), nil })
}

func (c *Client) next(ctx context.Context, gs *groups, tag string, from func() (*source, error)) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, gaveUp(ctx, err)
	}
	g, b, err := gs.join(tag, from)
	if err != nil {
		return 0, err
	}
	if _, ok := ctx.Deadline(); !ok && c.timeout > 0 {
		// A timer for each caller would cost more than all the rest.
		came := time.Now()
		select {
		case <-b.wake:
		case <-ctx.Done():
		}
		if b.answered.Load() {
			return b.one()
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, came.Add(c.timeout))
		defer cancel()
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		if gs.leave(g, b) {
			return 0, g.gaveUp(ctx)
		}
	}
	return b.one()
}

// groups are the callers that wait for one ID each, by tag; those of snowflakes
// have a map of their own, where what is no tag cannot meet them.
type groups struct {
	mu sync.Mutex
	of map[string]*group // those with a request under way
}

// group is the callers of one tag. Its batches are served one at a time.
type group struct {
	*source
	tag     string // empty: snowflakes
	waiting *batch // for the next request; nil: nobody
}

// batch is callers that are served by one request.
type batch struct {
	callers int // that are still here; under the lock of groups
	ctx     context.Context
	cancel  context.CancelFunc // when none is
	timer   *time.Timer        // for the client's timeout, from the first of them on; nil: there is none
	wake    chan struct{}      // closed when that is over, or before, when there is an answer

	answered atomic.Bool   // set under the lock of groups
	done     chan struct{} // closed then: after the lock, which those who wake up want for their next ID
	ids      []Range       // as many as there are callers then, unless there is an error
	err      error
	taken    atomic.Int64 // of ids
}

// join adds a caller to the next batch of a tag, and sees to it that somebody
// serves it.
func (gs *groups) join(tag string, from func() (*source, error)) (*group, *batch, error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.of[tag]
	if g == nil {
		s, err := from()
		if err != nil {
			return nil, nil, err
		}
		if gs.of == nil {
			gs.of = make(map[string]*group)
		}
		g = &group{source: s, tag: tag}
		gs.of[tag] = g
		go gs.serve(g) // once the lock is free
	}
	if g.waiting == nil {
		g.waiting = newBatch(g.c.timeout)
	}
	g.waiting.callers++
	return g, g.waiting, nil
}

func newBatch(timeout time.Duration) *batch {
	b := &batch{done: make(chan struct{}), wake: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if timeout > 0 {
		b.timer = time.AfterFunc(timeout, func() { close(b.wake) })
	}
	return b
}

// end lets go of what a batch has.
func (b *batch) end() {
	b.cancel()
	if b.timer != nil && b.timer.Stop() {
		close(b.wake)
	}
}

// leave takes a caller out of its batch. It reports false if the batch was
// answered first: then the caller's ID is in it.
func (gs *groups) leave(g *group, b *batch) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if b.answered.Load() {
		return false
	}
	b.callers--
	if b.callers == 0 {
		b.end()
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
			delete(gs.of, g.tag)
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
		if g.tag == "" {
			spare = nil // a snowflake would become old while more are asked for
		}
		b.err = err
		b.answered.Store(true)
		gs.mu.Unlock()
		close(b.done)
		b.end()
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

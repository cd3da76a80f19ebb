package bus

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Next returns one ID of tag. Callers that come while a request is under way share the next request, as
// transactions share a write in a group commit. So Next fetches nothing ahead, and a thousand callers
// make few requests. Each caller's context ends only its own call. A request ends when all its callers
// have left. If an answer is lost, later callers wait for the retry, too, which comes after a second.
// Errors are those of Take.
//
// [Pool] answers faster, from IDs that it fetched ahead.
func (c *Client) Next(ctx context.Context, tag string) (int64, error) {
	return c.next(ctx, &c.tagGroups, tag, func() (*source, error) { return c.tag(tag) })
}

// NextSnowflake returns one snowflake, as Next returns an ID of a tag.
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
		// The batch has a timer for all its callers: one for each would cost more than all the rest.
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

// groups are the callers that wait for one ID each, by tag. Snowflakes have groups of their own, so no
// tag can be mistaken for them.
type groups struct {
	mu sync.Mutex
	of map[string]*group // the groups with a request under way
}

// group is the callers of one tag. It serves its batches one at a time.
type group struct {
	*source
	tag     string // empty: snowflakes
	waiting *batch // for the next request; nil: no caller waits
}

// batch is the callers that one request serves.
type batch struct {
	callers int // that have not left; under the lock of groups
	ctx     context.Context
	cancel  context.CancelFunc // called when all have left
	timer   *time.Timer        // the client's timeout, from the first caller on; nil: there is none
	wake    chan struct{}      // closed by the timer, or by an earlier answer

	answered atomic.Bool   // set under the lock of groups
	done     chan struct{} // closed then, but after the lock is free: callers take it for their next ID
	ids      []Range       // one for each caller, unless there is an error
	err      error
	taken    atomic.Int64 // how many of ids
}

// join adds a caller to the next batch of a tag. If no goroutine serves the tag, join starts one.
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
		go gs.serve(g) // it begins when the lock is free
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

// end releases the timer and the contexts of a batch.
func (b *batch) end() {
	b.cancel()
	if b.timer != nil && b.timer.Stop() {
		close(b.wake)
	}
}

// leave removes a caller from its batch. It returns false if the batch was answered before: then it
// has an ID for the caller.
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

// serve answers the batches of a group until no caller waits.
func (gs *groups) serve(g *group) {
	var spare []Range // of callers that left after the request for their IDs
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
			spare = nil // a snowflake would age until the next answer
		}
		b.err = err
		b.answered.Store(true)
		gs.mu.Unlock()
		close(b.done)
		b.end()
	}
}

// one returns a caller's ID.
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

// cut splits ranges after n IDs.
func cut(ranges []Range, n int64) (head, tail []Range) {
	for i, r := range ranges {
		switch {
		case n >= r.Len():
			n -= r.Len()
		case n == 0:
			return ranges[:i:i], ranges[i:]
		default:
			at := r.First + n
			head = append(ranges[:i:i], Range{First: r.First, Last: at - 1})
			return head, append([]Range{{First: at, Last: r.Last}}, ranges[i+1:]...)
		}
	}
	return ranges, nil
}

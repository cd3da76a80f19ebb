package bus

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// Next returns one ID of tag. Callers that come while a request is under way share the next request, as transactions
// share a write in a group commit. So a thousand callers make few requests. If an answer is late, the callers that came
// since get a request of their own at once. Each caller's context ends only its own call. A request ends when all its
// callers have left. Errors are those of Take.
//
// An answer serves callers that came before its request was sent, so Next keeps the order of a strict tag. The IDs of
// callers that left meanwhile are gaps.
//
// [Pool] answers faster, from IDs that it fetched ahead. It refuses strict tags.
func (c *Client) Next(ctx context.Context, tag string) (int64, error) {
	return c.next(ctx, &c.tagGroups, tag, func() (*source, error) { return c.tag(tag) })
}

// NextSnowflake returns one snowflake, as Next returns an ID of a tag.
func (c *Client) NextSnowflake(ctx context.Context) (int64, error) {
	return c.next(ctx, &c.flakeGroups, "", func() (*source, error) { return c.snowflakes(), nil })
}

func (c *Client) next(ctx context.Context, gs *groups, tag string, from func() (*source, error)) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, wire.GaveUp(ctx, err)
	}
	deadline, bounded := ctx.Deadline()
	g, b, err := gs.join(tag, from, deadline)
	if err != nil {
		return 0, err
	}
	// Most answers come soon. To wait for a context too costs a third more, so that is for later.
	if !bounded || deadline.After(b.glance) {
		<-b.soon
		if b.answered.Load() {
			return b.one()
		}
	}
	expired := b.expired
	if bounded {
		expired = nil
	}
	select {
	case <-b.done:
		return b.one()
	case <-ctx.Done():
	case <-expired:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 0)
		defer cancel()
	}
	if gs.leave(g, b) {
		return 0, g.gaveUp(ctx)
	}
	<-b.done
	return b.one()
}

// firstGlance is after how long the callers of a batch look at their contexts.
const firstGlance = 2 * time.Millisecond

// groups are the callers that wait for one ID each, by tag. Snowflakes have groups of their own, so no
// tag can be mistaken for them.
type groups struct {
	mu sync.Mutex
	of map[string]*group // the groups with a request under way
}

// group is the callers of one tag. Its batches have one request at a time, but do not wait for one that is late.
type group struct {
	*source
	tag     string // empty: snowflakes
	waiting *batch // for the next request; nil: no caller waits
	serving bool   // a goroutine has a request under way that is not late, and takes the batch that waits after it
}

// batch is the callers that one request serves.
type batch struct {
	// Under the lock of groups:
	callers int       // that have not left
	soonest time.Time // the first deadline of a caller; zero: none has one

	ctx     context.Context
	cancel  context.CancelFunc // called when all have left
	ends    time.Time          // of callers without a deadline; zero: they have all time
	expired chan struct{}      // closed then
	timer   *time.Timer        // closes expired; nil: they have all time
	glance  time.Time          // callers look at their contexts from then on
	soon    chan struct{}      // closed then, or by an earlier answer
	looking *time.Timer        // closes soon
	done    chan struct{}      // closed when it is answered

	answered atomic.Bool // set under the lock of groups, after:

	ids    []Range // one for each caller, unless there is an error. Later callers never get what is left
	single bool    // each of ids is a range of one: an opaque tag has thousands of these
	err    error
	taken  atomic.Int64 // how many of ids
}

// join adds a caller to the next batch of a tag. If no goroutine serves the tag, join starts one. A deadline of zero is
// none.
func (gs *groups) join(tag string, from func() (*source, error), deadline time.Time) (*group, *batch, error) {
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
	}
	b := g.waiting
	if b == nil {
		b = newBatch(g.c.timeout)
		g.waiting = b
	}
	b.callers++
	if deadline.IsZero() {
		deadline = b.ends
	}
	if !deadline.IsZero() && (b.soonest.IsZero() || deadline.Before(b.soonest)) {
		b.soonest = deadline
	}
	gs.start(g)
	return g, b, nil
}

// start makes a goroutine serve a group, unless one does. It begins when the lock is free.
func (gs *groups) start(g *group) {
	if !g.serving && g.waiting != nil {
		g.serving = true
		go gs.serve(g)
	}
}

func newBatch(timeout time.Duration) *batch {
	b := &batch{glance: time.Now().Add(firstGlance), soon: make(chan struct{}), done: make(chan struct{})}
	b.looking = time.AfterFunc(firstGlance, func() { close(b.soon) })
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if timeout > 0 {
		b.ends = time.Now().Add(timeout)
		expired := make(chan struct{})
		b.expired, b.timer = expired, time.AfterFunc(timeout, func() { close(expired) })
	}
	return b
}

// end releases the timer and the context of a batch.
func (b *batch) end() {
	b.cancel()
	if b.looking.Stop() {
		close(b.soon)
	}
	if b.timer != nil {
		b.timer.Stop()
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

// serve answers the batches of a group until no caller waits, or an answer is late. Then another goroutine goes on.
func (gs *groups) serve(g *group) {
	for alone := true; alone; {
		gs.mu.Lock()
		b := g.waiting
		if b == nil {
			gs.release(g)
			gs.mu.Unlock()
			return
		}
		g.waiting = nil
		n := int64(b.callers)
		terms := request{until: b.soonest, late: func() {
			gs.mu.Lock()
			defer gs.mu.Unlock()
			if alone {
				alone = false
				gs.release(g)
			}
		}}
		gs.mu.Unlock()

		for b.err == nil && n > 0 {
			var more []Range
			more, b.err = g.some(b.ctx, n, terms)
			b.ids = append(b.ids, more...)
			n -= total(more)
		}
		b.single = total(b.ids) == int64(len(b.ids))
		gs.mu.Lock()
		b.answered.Store(true)
		gs.mu.Unlock()
		close(b.done) // when the lock is free: callers take it for their next ID
		b.end()
	}
}

// release lets another goroutine serve a group. It forgets a group for which nobody waits.
func (gs *groups) release(g *group) {
	g.serving = false
	gs.start(g)
	if !g.serving {
		delete(gs.of, g.tag)
	}
}

// one returns a caller's ID.
func (b *batch) one() (int64, error) {
	i := b.taken.Add(1) - 1
	if b.single && i < int64(len(b.ids)) {
		return b.ids[i].First, nil
	}
	for _, r := range b.ids {
		if i < r.Len() {
			return r.First + i, nil
		}
		i -= r.Len()
	}
	return 0, b.err
}

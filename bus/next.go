package bus

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/internal/wire"
)

// Next returns one ID of tag. Callers that come while a request is under way share the next
// request, as transactions share a write in a group commit. So a thousand callers make few
// requests. If an answer is late, the callers that came since get a request of their own at once.
// Each caller's context ends only its own call. A request ends when all its callers have left.
// Errors are those of Take.
//
// An answer serves callers that came before its request was sent. The IDs of callers that left
// meanwhile are gaps. A request of 128 callers or more is for twice as many IDs. Callers that come
// while the next request is under way get these at once, and the rest are gaps. Of a strict tag
// nothing is fetched ahead, so Next keeps its order.
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
	for {
		if err := ctx.Err(); err != nil {
			return 0, wire.GaveUp(ctx, err)
		}
		deadline, _ := ctx.Deadline()
		g, b, id, err := gs.join(tag, from, deadline)
		if err != nil || b == nil {
			return id, err
		}
		select {
		case <-b.done:
		case <-ctx.Done():
			if gs.leave(g, b) {
				return 0, g.gaveUp(ctx)
			}
		}
		// A caller may have more time than its batch, or than the most urgent caller of it, whom a
		// quota leaves none.
		id, err = b.one()
		if deadline.IsZero() || !timedOut(err) && !(errors.Is(err, QuotaExceeded) && deadline.After(b.soonest)) {
			return id, err
		}
		if ctx.Err() != nil {
			return 0, g.gaveUp(ctx)
		}
	}
}

// A request for manyCallers or more is for twice as many IDs, because a caller that has to wait
// costs more than an ID.
const manyCallers = 128

// groups are the callers that wait for one ID each, by tag. Snowflakes have groups of their own, so
// no tag can be mistaken for them.
type groups struct {
	mu sync.Mutex
	of map[string]*group // the groups with a request under way
}

// group is the callers of one tag. Its batches have one request at a time, but do not wait for one
// that is late.
type group struct {
	*source
	tag     string  // empty: snowflakes
	waiting *batch  // for the next request; nil: no caller waits
	spare   []int64 // for callers that come while a request is under way
	serving bool    // a goroutine has a request under way that is not late, and takes the batch that waits after it
}

// batch is the callers that one request serves. It has the time of a call without a deadline.
type batch struct {
	callers int // that have not left; under the lock of groups
	ctx     context.Context
	cancel  context.CancelFunc // called when all have left
	soonest time.Time          // the first deadline of a caller; zero: none has one

	done  chan struct{} // closed when it is answered, but after the lock is free: callers take it for their next ID
	ids   []int64       // one for each caller, unless there is an error. Later callers never get what is left
	err   error
	taken atomic.Int64 // how many of ids
}

// join adds a caller to the next batch of a tag. If no goroutine serves the tag, join starts one. A
// deadline of zero is none. If there is a spare ID, join returns that and no batch.
func (gs *groups) join(
	tag string, from func() (*source, error), deadline time.Time,
) (_ *group, b *batch, id int64, err error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.of[tag]
	if g == nil {
		s, err := from()
		if err != nil {
			return nil, nil, 0, err
		}
		if gs.of == nil {
			gs.of = make(map[string]*group)
		}
		g = &group{source: s, tag: tag}
		gs.of[tag] = g
	}
	if len(g.spare) > 0 {
		id, g.spare = g.spare[0], g.spare[1:]
		return nil, nil, id, nil
	}
	if b = g.waiting; b == nil {
		b = &batch{done: make(chan struct{})}
		if b.ctx, b.cancel = context.WithCancel(context.Background()); g.c.timeout > 0 {
			b.ctx, b.cancel = context.WithTimeout(context.Background(), g.c.timeout)
		}
		g.waiting = b
	}
	b.callers++
	if !deadline.IsZero() && (b.soonest.IsZero() || deadline.Before(b.soonest)) {
		b.soonest = deadline
	}
	gs.start(g)
	return g, b, 0, nil
}

// start makes a goroutine serve a group, unless one does. It begins when the lock is free.
func (gs *groups) start(g *group) {
	if !g.serving && g.waiting != nil {
		g.serving = true
		go gs.serve(g)
	}
}

// leave removes a caller from its batch. It returns false if the batch was answered before: then it
// has an ID for the caller.
func (gs *groups) leave(g *group, b *batch) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	select {
	case <-b.done:
		return false
	default:
	}
	if b.callers--; b.callers == 0 {
		b.cancel()
		if g.waiting == b {
			g.waiting = nil
		}
	}
	return true
}

// serve answers the batches of a group until no caller waits, or an answer is late. Then another
// goroutine goes on.
func (gs *groups) serve(g *group) {
	trend := false // an answer said so
	for alone := true; alone; {
		gs.mu.Lock()
		b := g.waiting
		if b == nil {
			gs.release(g)
			gs.mu.Unlock()
			return
		}
		g.waiting = nil
		n := b.callers
		gs.mu.Unlock()

		terms := request{until: b.soonest, late: func() {
			gs.mu.Lock()
			defer gs.mu.Unlock()
			if alone {
				alone = false
				gs.release(g)
			}
		}}
		var ids []int64
		var err error
		most := n
		if trend && n >= manyCallers {
			most = 2 * n
		}
		for err == nil && len(ids) < n {
			var more []Range
			more, err = g.some(b.ctx, int64(most-len(ids)), terms)
			for _, r := range more {
				ids = slices.AppendSeq(ids, r.All())
			}
		}
		trend = err == nil && !g.strict.Load()

		gs.mu.Lock()
		if alone {
			g.spare = nil // what is left is older than this answer
			if trend {
				g.spare = ids[n:]
			}
		}
		b.ids, b.err = ids[:min(n, len(ids))], err
		gs.mu.Unlock()
		close(b.done)
		b.cancel()
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
	if i := int(b.taken.Add(1) - 1); i < len(b.ids) {
		return b.ids[i], nil
	}
	return 0, b.err
}

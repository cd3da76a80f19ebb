package bus

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of a [Pool].
const (
	DefaultLeastAhead = 100
	DefaultMostAhead  = 1_000_000
	// LimitAhead is the most that a pool may be told to keep.
	LimitAhead = 1 << 40
	// DefaultMaxAge is how old a pool lets a snowflake become.
	DefaultMaxAge = time.Second
	// idle is how long half of what a pool keeps lasts when it keeps too much.
	idle = 10 * time.Second
)

// ErrPoolClosed is what Next says after Close.
var ErrPoolClosed = errors.New("the pool of IDs is closed")

// Pool keeps IDs in memory, so that Next costs an atomic addition. It fetches more in the
// background when half of them are used. How many it keeps follows the demand:
// it doubles when callers had to wait, and halves when half of it lasted 10 s, as
// TinyID and CosId adapt theirs. The first are fetched by the first Next.
//
// IDs that it holds when the process ends are gaps, as many as [Ahead] lets it keep. They stay
// valid when an operator moves the tag's max_id on.
//
// Where IDs become too old (see [MaxAge]) each Next also looks at the clock, under a lock.
//
// Its methods are safe for concurrent use.
type Pool struct {
	fetch       func(context.Context, int64) (ranges []Range, asked time.Time, err error)
	why         func(context.Context) error // of a caller that gives up
	bound       func(context.Context) (context.Context, context.CancelFunc)
	least, most int64
	maxAge      time.Duration // 0: any
	ctx         context.Context
	cancel      context.CancelFunc

	cur atomic.Pointer[piece]

	mu       sync.Mutex // guards the rest, and who changes cur
	ahead    []*piece   // after cur
	kept     int64      // IDs in ahead
	distance int64      // how many IDs to keep
	want     int64      // more are fetched when no more than this are left
	filling  *fill      // the fetch that is under way
	filled   time.Time  // when the last one succeeded; zero: none has
	hungry   bool       // a caller waited, since then
	stale    bool       // IDs became too old, since then, which is no hunger
	closed   bool
	running  sync.WaitGroup
}

// piece is a range in a pool.
type piece struct {
	first, n int64
	taken    atomic.Int64 // how many callers took one; beyond n: in vain
	// low is the first count of taken at which a caller must look after the
	// pool, at most n+1.
	low  atomic.Int64
	born time.Time // when it was asked for
}

// fill is a fetch.
type fill struct {
	began   time.Time
	waiting int64 // callers
	done    chan struct{}

	// Once done is closed:
	err   error
	asked time.Time
	ids   []Range // for those who wait
}

// PoolOption changes how a [Pool] works.
type PoolOption func(*Pool)

// Ahead bounds how many IDs a pool keeps: least to begin with, most under load, with
// 1 <= least <= most <= [LimitAhead]. Default: [DefaultLeastAhead] and [DefaultMostAhead]. With fewer IDs than
// callers that wait, those who are served are not always those who came first.
func Ahead(least, most int64) PoolOption {
	return func(p *Pool) { p.least, p.most = least, most }
}

// MaxAge is how long after it was asked for a snowflake may be handed out, at most; older
// ones are discarded, because the time in a snowflake should be true. Only a caller that waits for an answer
// gets an ID from it however long that took, as from [Client.Snowflakes]. 0: any age. IDs of a
// tag have none unless it is given.
func MaxAge(d time.Duration) PoolOption { return func(p *Pool) { p.maxAge = d } }

// Pool returns a pool of IDs of tag. Close it when it is not needed any more.
func (c *Client) Pool(tag string, opts ...PoolOption) (*Pool, error) {
	s, err := c.tag(tag)
	if err != nil {
		return nil, err
	}
	return newPool(s, 0, opts)
}

// SnowflakePool returns a pool of snowflakes.
func (c *Client) SnowflakePool(opts ...PoolOption) (*Pool, error) {
	return newPool(c.snowflakes(), DefaultMaxAge, opts)
}

func newPool(s *source, maxAge time.Duration, opts []PoolOption) (*Pool, error) {
	p := &Pool{
		fetch: s.some, why: s.gaveUp, bound: s.c.bound,
		least: DefaultLeastAhead, most: DefaultMostAhead, maxAge: maxAge,
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, o := range opts {
		o(p)
	}
	if p.least < 1 || p.most < p.least || p.most > LimitAhead {
		return nil, badRequest("a pool that keeps %d to %d IDs: want 1 <= least <= most <= %d", p.least, p.most, int64(LimitAhead))
	}
	if p.maxAge < 0 {
		return nil, badRequest("IDs of a pool may not be %v old: want 0 or more", p.maxAge)
	}
	p.distance = p.least
	p.cur.Store(&piece{})
	return p, nil
}

// Next returns an ID that no other caller has. Only where the pool is empty it waits, for
// the context or, without a deadline, for the client's [Timeout]; what cannot get better is
// returned at once. Errors are those of [Client.Take], and [ErrPoolClosed].
func (p *Pool) Next(ctx context.Context) (int64, error) {
	c := p.cur.Load()
	i := c.taken.Add(1)
	if i < c.low.Load() {
		return c.first + i - 1, nil
	}
	return p.slow(ctx, c, i)
}

// slow is Next where the i-th of a piece is not simply handed out.
func (p *Pool) slow(ctx context.Context, c *piece, i int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var came time.Time // when this caller found nothing
	for {
		if i <= c.n {
			if !p.old(c.born) {
				p.look()
				return c.first + i - 1, nil
			}
			if c == p.cur.Load() {
				p.cur.Store(&piece{}) // what is left of it counts no more
				p.stale = true
			}
		}
		if c == p.cur.Load() && !p.advance() {
			if came.IsZero() {
				came = time.Now()
				var cancel context.CancelFunc
				ctx, cancel = p.bound(ctx)
				defer cancel()
			}
			f, err := p.wait(ctx)
			if err != nil {
				return 0, err
			}
			// An answer to what was asked for after this caller came is as fresh as that
			// to a request of its own, also a refusal, and however long it took.
			own := !f.began.Before(came)
			if id, ok := p.share(f, own); ok {
				return id, nil
			}
			if f.err != nil && own && !p.closed && !retryable(f.err) {
				return 0, f.err
			}
		}
		c = p.cur.Load()
		i = c.taken.Add(1)
	}
}

// wait waits until a fetch has ended, or the context is done. It lets go of the
// lock meanwhile.
func (p *Pool) wait(ctx context.Context) (*fill, error) {
	switch {
	case p.closed:
		return nil, ErrPoolClosed
	case ctx.Err() != nil:
		return nil, p.why(ctx)
	}
	p.hungry = p.hungry || !p.filled.IsZero()
	f := p.start(1)
	f.waiting++
	p.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
	}
	p.mu.Lock()
	if f == p.filling {
		f.waiting--
	}
	return f, nil
}

// share returns the ID that a fetch has for one of those who waited for it:
// callers that run would take them all before they have woken up. It may be as old as the
// answer is slow, if the fetch is the caller's own.
func (p *Pool) share(f *fill, own bool) (id int64, ok bool) {
	if len(f.ids) == 0 {
		return 0, false
	}
	var one []Range
	one, f.ids = cut(f.ids, 1)
	if !own && p.old(f.asked) {
		p.stale = true
		return 0, false
	}
	return one[0].First, true
}

// advance makes the next piece the current one, if there is one.
func (p *Pool) advance() bool {
	for len(p.ahead) > 0 {
		c := p.ahead[0]
		p.ahead, p.kept = p.ahead[1:], p.kept-c.n
		if p.old(c.born) {
			p.stale = true
			continue
		}
		p.arm(c)
		p.cur.Store(c)
		return true
	}
	return false
}

// old reports whether IDs that were asked for then are not to be handed out any
// more.
func (p *Pool) old(asked time.Time) bool {
	if p.maxAge == 0 {
		return false
	}
	now := time.Now()
	// The wall clock notices that the machine slept, which the monotonic one may not.
	return max(now.Sub(asked), now.Round(0).Sub(asked.Round(0))) > p.maxAge
}

// left is how many IDs there are.
func (p *Pool) left() int64 {
	c := p.cur.Load()
	return max(c.n-c.taken.Load(), 0) + p.kept
}

// look starts a fetch if it is time.
func (p *Pool) look() {
	if p.left() <= p.want {
		p.start(1)
	}
	p.arm(p.cur.Load())
}

// arm sets from where on callers must look after the pool.
func (p *Pool) arm(c *piece) {
	switch {
	case p.maxAge > 0: // each looks how old it is
	case p.filling != nil:
		c.low.Store(c.n + 1)
	default:
		c.low.Store(min(max(c.n+p.kept-p.want, 0), c.n+1))
	}
}

// start returns the fetch that is under way, after it has started one, for least
// IDs or more, if there is none; nil if the pool is closed.
func (p *Pool) start(least int64) *fill {
	if p.filling == nil && !p.closed {
		f := &fill{done: make(chan struct{}), began: time.Now()}
		n := min(max(p.distance-p.left(), least), p.most)
		p.filling = f
		p.running.Go(func() { p.run(f, n) })
	}
	return p.filling
}

// run is a fetch.
func (p *Pool) run(f *fill, n int64) {
	ctx, cancel := p.bound(p.ctx)
	ranges, asked, err := p.fetch(ctx, n)
	cancel()

	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(f.done)
	p.filling = nil
	if err != nil {
		f.err = err
		// Again when half of the rest is used, so that a long outage costs few
		// attempts; callers that find nothing try at once.
		p.want = p.left() / 2
		p.arm(p.cur.Load())
		return
	}
	f.asked = asked
	f.ids, ranges = cut(ranges, f.waiting)
	for _, r := range ranges {
		p.ahead = append(p.ahead, &piece{first: r.First, n: r.Len(), born: asked})
		p.kept += r.Len()
	}
	p.adapt(f)
	if more := f.waiting - total(f.ids); more > 0 {
		p.start(more)
	}
	p.look()
}

// adapt makes the distance follow the demand after a fetch.
func (p *Pool) adapt(f *fill) {
	switch {
	case p.stale:
		p.distance = max(p.distance/2, p.least)
	case p.hungry:
		p.distance = min(2*p.distance, p.most)
	case !p.filled.IsZero() && f.began.Sub(p.filled) >= idle:
		p.distance = max(p.distance/2, p.least)
	}
	p.hungry, p.stale, p.filled = false, false, time.Now()
	p.want = p.distance / 2
}

// Close ends the pool and returns the IDs that it has and will not hand out: gaps,
// unless the caller uses them. Those that had become too old were dropped before. Later calls return none.
func (p *Pool) Close() []Range {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	var unused []Range
	c := p.cur.Load()
	if taken := c.taken.Swap(math.MaxInt64 / 2); taken < c.n {
		unused = append(unused, Range{First: c.first + taken, Last: c.first + c.n - 1})
	}
	for _, c := range p.ahead {
		unused = append(unused, Range{First: c.first, Last: c.first + c.n - 1})
	}
	p.ahead, p.kept = nil, 0
	return unused
}

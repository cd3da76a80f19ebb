package bus

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Bounds of a [Pool].
const (
	DefaultLeastAhead = 100
	DefaultMostAhead  = 1_000_000
	// LimitAhead is the largest value of [Ahead].
	LimitAhead = 1 << 40
	// DefaultMaxAge is the [MaxAge] of a pool of snowflakes.
	DefaultMaxAge = time.Second
	// idle is the time after which a pool keeps fewer IDs, if half of them lasted for as long.
	idle = 10 * time.Second
)

// ErrPoolClosed is the error of Next after Close.
var ErrPoolClosed = errors.New("the pool of IDs is closed")

// Pool keeps IDs in memory, so that Next costs one atomic addition. The first Next fetches the first
// IDs. When half of them are used, the pool fetches more in the background. How many it keeps follows
// the demand: the number doubles when callers had to wait, and halves when half of it lasted 10 s.
//
// The IDs in a pool are gaps if the process ends, at most as many as [Ahead] allows. They stay valid
// when an operator moves the tag's max_id.
//
// A pool of a strict tag is refused, because IDs that are fetched ahead would not be in order. The first
// answer says that a tag is strict. From then on each Next returns an *[Error] that matches [BadRequest],
// and the pool sends no more requests. The IDs of that answer are a gap. Use [Client.Next] or [Client.Take].
//
// If IDs have a [MaxAge], each Next also reads the clock, under a lock.
//
// The methods are safe for concurrent use.
type Pool struct {
	from        *source
	fetch       func(context.Context, int64) (ranges []Range, asked time.Time, err error)
	why         func(context.Context) error // the error of a caller that the context ended
	bound       func(context.Context) (context.Context, context.CancelFunc)
	least, most int64
	maxAge      time.Duration // 0: any
	ctx         context.Context
	cancel      context.CancelFunc

	cur atomic.Pointer[piece]

	mu       sync.Mutex // guards the fields below, and writes to cur
	ahead    []*piece   // after cur
	kept     int64      // IDs in ahead
	distance int64      // how many IDs to keep
	want     int64      // the next fetch starts when no more than this are left
	filling  *fill      // the fetch that is under way
	filled   time.Time  // when the last fetch succeeded; zero: none has
	hungry   bool       // a caller had to wait since then
	stale    bool       // IDs became too old since then, which says nothing about the demand
	end      error      // of each Next from now on: the pool is closed, or the tag is strict; nil: it works
	running  sync.WaitGroup
}

// piece is a range in a pool, or many ranges of one, as opaque tags have them.
type piece struct {
	first, n int64
	ids      []int64 // of ranges of one; nil: the n IDs from first on
	// low is the first value of taken at which a caller must take the slow path, at most n+1.
	low  atomic.Int64
	born time.Time // when it was requested

	_     [cacheLine]byte // an addition takes the cache line from all other processors
	taken atomic.Int64    // how many callers tried to take one; those above n got none
	_     [cacheLine]byte
}

// cacheLine is at least the size of a cache line, in bytes.
const cacheLine = 64

// fill is a fetch.
type fill struct {
	n       int64 // how many IDs it asked for
	began   time.Time
	waiting int64         // callers
	soonest time.Time     // the first deadline of a caller that waits; zero: none has one
	done    chan struct{} // closed when the fetch has ended. A late answer to an earlier one closes and replaces it

	// Once the fetch has ended:
	err   error
	asked time.Time
	ids   []Range // for the callers that wait
}

// PoolOption changes how a [Pool] works.
type PoolOption func(*Pool)

// Ahead bounds how many IDs a pool keeps: least at the beginning, most under load, with
// 1 <= least <= most <= [LimitAhead]. Default: [DefaultLeastAhead] and [DefaultMostAhead]. If more callers
// wait than most, they are not always served in the order in which they came.
func Ahead(least, most int64) PoolOption {
	return func(p *Pool) { p.least, p.most = least, most }
}

// MaxAge is the time after its request in which the pool may hand out an ID. The pool discards older
// ones, because the time in a snowflake should be true. Only a caller that waits for its own request gets
// an ID of any age, as from [Client.Snowflakes]. 0: any age. Default: [DefaultMaxAge] for snowflakes, 0
// for a tag.
func MaxAge(d time.Duration) PoolOption { return func(p *Pool) { p.maxAge = d } }

// Pool returns a pool of IDs of tag, which must not be strict. Close it after use.
func (c *Client) Pool(tag string, opts ...PoolOption) (*Pool, error) {
	s, err := c.tag(tag)
	if err != nil {
		return nil, err
	}
	return newPool(s, 0, opts)
}

// SnowflakePool returns a pool of snowflakes. Close it after use.
func (c *Client) SnowflakePool(opts ...PoolOption) (*Pool, error) {
	return newPool(c.snowflakes(), DefaultMaxAge, opts)
}

func newPool(s *source, maxAge time.Duration, opts []PoolOption) (*Pool, error) {
	p := &Pool{
		from: s, why: s.gaveUp, bound: s.c.bound,
		least: DefaultLeastAhead, most: DefaultMostAhead, maxAge: maxAge,
	}
	p.fetch = func(ctx context.Context, n int64) ([]Range, time.Time, error) {
		return s.some(ctx, n, request{left: p.urgent, more: p.more})
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, o := range opts {
		o(p)
	}
	if p.least < 1 || p.most < p.least || p.most > LimitAhead {
		return nil, badRequest("Ahead is %d to %d: want 1 <= least <= most <= %d", p.least, p.most, int64(LimitAhead))
	}
	if p.maxAge < 0 {
		return nil, badRequest("MaxAge is %v: want 0 or more", p.maxAge)
	}
	p.distance = p.least
	p.cur.Store(&piece{})
	return p, nil
}

// Next returns an ID that no other caller has. If the pool is empty, Next waits until the context is
// done or, without a deadline, for the client's [Timeout]. An error that no retry can fix is returned
// at once. Errors are those of [Client.Take], [ErrPoolClosed], and [BadRequest] if the tag is strict.
func (p *Pool) Next(ctx context.Context) (int64, error) {
	c := p.cur.Load()
	// The addition makes all later reads wait, so the reads come first. If low falls in between, this
	// caller still gets an ID, because low is at most n+1, and the next one takes the slow path.
	first, ids, low := c.first, c.ids, c.low.Load()
	i := c.taken.Add(1)
	if i >= low {
		return p.slow(ctx, c, i)
	}
	if ids != nil {
		return ids[i-1], nil
	}
	return first + i - 1, nil
}

// id is the i-th ID of a piece, from 1 on.
func (c *piece) id(i int64) int64 {
	if c.ids != nil {
		return c.ids[i-1]
	}
	return c.first + i - 1
}

// after returns the IDs of a piece after the first n.
func (c *piece) after(n int64) (left []Range) {
	switch {
	case n >= c.n:
	case c.ids == nil:
		left = append(left, Range{First: c.first + n, Last: c.first + c.n - 1})
	default:
		for _, id := range c.ids[n:] {
			left = append(left, Range{First: id, Last: id})
		}
	}
	return left
}

// slow is Next for a caller that is the i-th of a piece and may not simply take its ID.
func (p *Pool) slow(ctx context.Context, c *piece, i int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var came time.Time // when this caller found nothing
	for {
		if i <= c.n {
			if !p.old(c.born) {
				p.look()
				return c.id(i), nil
			}
			if c == p.cur.Load() {
				p.cur.Store(&piece{}) // drop the rest of it
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
			// A fetch that began after this caller came counts as the caller's own request: its
			// IDs are fresh however long it took, and a refusal is final.
			own := !f.began.Before(came)
			if id, ok := p.share(f, own); ok {
				return id, nil
			}
			if f.err != nil && own && p.end == nil && (!retryable(f.err) || errors.Is(f.err, QuotaExceeded)) {
				return 0, f.err
			}
		}
		c = p.cur.Load()
		i = c.taken.Add(1)
	}
}

// wait waits until a fetch has ended, or the context is done. It releases the lock meanwhile.
func (p *Pool) wait(ctx context.Context) (*fill, error) {
	switch {
	case p.end != nil:
		return nil, p.end
	case ctx.Err() != nil:
		return nil, p.why(ctx)
	}
	p.hungry = p.hungry || !p.filled.IsZero()
	f := p.start(1)
	f.waiting++
	if end, ok := ctx.Deadline(); ok && (f.soonest.IsZero() || end.Before(f.soonest)) {
		f.soonest = end
	}
	done := f.done
	p.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	p.mu.Lock()
	if f == p.filling && done == f.done {
		f.waiting--
	}
	return f, nil
}

// share returns the ID that a fetch has kept for a caller that waited for it. Otherwise running callers
// would take all IDs before the waiting ones have woken up. If the fetch is the caller's own, the ID may
// have any age.
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

// old reports whether IDs that were requested then are too old to be handed out.
func (p *Pool) old(asked time.Time) bool {
	if p.maxAge == 0 {
		return false
	}
	now := time.Now()
	// Unlike the monotonic clock, the wall clock always includes the time in which the machine slept.
	return max(now.Sub(asked), now.Round(0).Sub(asked.Round(0))) > p.maxAge
}

// left returns how many IDs the pool has.
func (p *Pool) left() int64 {
	c := p.cur.Load()
	return max(c.n-c.taken.Load(), 0) + p.kept
}

// look starts a fetch if few IDs are left.
func (p *Pool) look() {
	if p.left() <= p.want {
		p.start(1)
	}
	p.arm(p.cur.Load())
}

// arm sets from which ID of a piece on callers must take the slow path.
func (p *Pool) arm(c *piece) {
	switch {
	case p.maxAge > 0: // low stays 0: each caller must look at the age
	case p.filling != nil:
		c.low.Store(c.n + 1)
	default:
		c.low.Store(min(max(c.n+p.kept-p.want, 0), c.n+1))
	}
}

// start returns the fetch that is under way. If there is none it starts one, for at least least IDs. It
// returns nil if the pool has ended.
func (p *Pool) start(least int64) *fill {
	if p.filling == nil && p.end == nil {
		n := min(max(p.distance-p.left(), least), p.most)
		f := &fill{n: n, done: make(chan struct{}), began: time.Now()}
		p.filling = f
		p.running.Go(func() { p.run(f) })
	}
	return p.filling
}

// run is a fetch.
func (p *Pool) run(f *fill) {
	ctx, cancel := p.bound(p.ctx)
	ranges, asked, err := p.fetch(ctx, f.n)
	cancel()

	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(f.done)
	p.filling = nil
	if err == nil && p.from.strict.Load() {
		err = p.refuse()
	}
	if err != nil {
		f.err = err
		// Retry when half of the rest is used, so that a long outage costs few attempts. A caller that
		// finds the pool empty retries at once.
		p.want = p.left() / 2
		p.arm(p.cur.Load())
		return
	}
	f.asked = asked
	f.ids, ranges = cut(ranges, f.waiting)
	p.keep(ranges, asked)
	p.adapt(f)
	if more := f.waiting - total(f.ids); more > 0 {
		p.start(more)
	}
	p.look()
}

// keep adds IDs that were requested then.
func (p *Pool) keep(ranges []Range, asked time.Time) {
	var scattered *piece // of the ranges of one before this one
	for _, r := range ranges {
		p.kept += r.Len()
		if r.Len() == 1 && scattered != nil {
			scattered.ids = append(scattered.ids, r.First)
			scattered.n++
			continue
		}
		c := &piece{first: r.First, n: r.Len(), born: asked}
		if scattered = nil; r.Len() == 1 {
			scattered, c.ids = c, []int64{r.First}
		}
		p.ahead = append(p.ahead, c)
	}
}

// more keeps the IDs of an answer to a request that had an answer before, as far as there is room.
func (p *Pool) more(msg *nats.Msg, asked time.Time) {
	if ReplyError(msg) != nil || noResponders(msg) {
		return
	}
	ranges, err := p.from.read(msg)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || p.end != nil || p.from.strict.Load() {
		return
	}
	room, f := p.most-p.left(), p.filling
	if f != nil {
		room -= f.n
	}
	ranges, _ = cut(ranges, max(room, 0))
	p.keep(ranges, asked)
	p.arm(p.cur.Load())
	if f != nil && f.waiting > 0 && len(ranges) > 0 { // they need not wait for their own
		close(f.done)
		f.done, f.waiting = make(chan struct{}), 0
	}
}

// urgent returns how long the most urgent caller waits. While nobody waits, a fetch is as urgent as a call of half a
// second.
func (p *Pool) urgent() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filling == nil || p.filling.soonest.IsZero() {
		return time.Second / 2
	}
	return time.Until(p.filling.soonest)
}

// refuse ends a pool of a strict tag. It drops IDs, should there be any, and returns the error of Next.
func (p *Pool) refuse() error {
	p.cur.Store(&piece{})
	p.ahead, p.kept = nil, 0
	if p.end == nil {
		tag := strings.TrimPrefix(p.from.subject, SubjectSegment+".")
		p.end = badRequest("tag %s is strict, and IDs that a pool fetches ahead would not be in order: use Next or Take of "+
			"the client", tag)
	}
	return p.end
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

// Close ends the pool and returns its unused IDs, which are gaps unless the caller uses them. IDs that
// the pool dropped for their age are not among them. Later calls return none.
func (p *Pool) Close() []Range {
	p.mu.Lock()
	p.end = ErrPoolClosed
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	var unused []Range
	c := p.cur.Load()
	unused = append(unused, c.after(c.taken.Swap(math.MaxInt64/2))...)
	for _, c := range p.ahead {
		unused = append(unused, c.after(0)...)
	}
	p.ahead, p.kept = nil, 0
	return unused
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

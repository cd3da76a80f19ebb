package bus

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

// Bounds of a [Pool].
const (
	leastAhead = 100
	mostAhead  = 1_000_000
	limitAhead = 1 << 40
	// idle is the time after which a pool keeps fewer IDs, if half of them lasted for as long.
	idle = 10 * time.Second
	// noHurry is how urgent a fetch is for which no caller waits: as a call with this deadline.
	noHurry = time.Second / 2
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
// The time in a snowflake of a pool is that of its fetch. Use [Client.NextSnowflake] where it must be that of the call.
//
// The methods are safe for concurrent use.
type Pool struct {
	from        *source
	fetch       func(ctx context.Context, n int64, until time.Time) ([]Range, error)
	why         func(context.Context) error // the error of a caller that the context ended
	bound       func(context.Context) (context.Context, context.CancelFunc)
	least, most int64
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
	end      error      // of each Next from now on: the pool is closed, or the tag is strict; nil: it works
	running  sync.WaitGroup
}

// piece is a range in a pool, or many ranges of one, as opaque tags have them.
type piece struct {
	first, n int64
	ids      []int64 // of ranges of one; nil: the n IDs from first on
	// low is the first value of taken at which a caller must take the slow path, at most n+1.
	low atomic.Int64

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
	soonest time.Time     // the first deadline of a caller that waited when the request was made; zero: none had one
	done    chan struct{} // closed when the fetch has ended

	// Once the fetch has ended:
	err error
	ids []Range // for the callers that wait
}

// PoolOption changes how a [Pool] works.
type PoolOption func(*Pool)

// Ahead bounds how many IDs a pool keeps: least at the beginning, most under load, with
// 1 <= least <= most <= 2^40. Default: 100 and 1,000,000. If more callers
// wait than most, they are not always served in the order in which they came.
func Ahead(least, most int64) PoolOption {
	return func(p *Pool) { p.least, p.most = least, most }
}

// Pool returns a pool of IDs of tag, which must not be strict. Close it after use.
func (c *Client) Pool(tag string, opts ...PoolOption) (*Pool, error) {
	s, err := c.tag(tag)
	if err != nil {
		return nil, err
	}
	return newPool(s, opts)
}

// SnowflakePool returns a pool of snowflakes. Close it after use.
func (c *Client) SnowflakePool(opts ...PoolOption) (*Pool, error) {
	return newPool(c.snowflakes(), opts)
}

func newPool(s *source, opts []PoolOption) (*Pool, error) {
	p := &Pool{
		from: s, why: s.gaveUp, bound: s.c.bound,
		least: leastAhead, most: mostAhead,
	}
	p.fetch = func(ctx context.Context, n int64, until time.Time) ([]Range, error) {
		return s.some(ctx, n, request{until: until})
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, o := range opts {
		o(p)
	}
	if p.least < 1 || p.most < p.least || p.most > limitAhead {
		return nil, badRequest("Ahead is %d to %d: want 1 <= least <= most <= %d", p.least, p.most, int64(limitAhead))
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
			p.look()
			return c.id(i), nil
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
			if len(f.ids) > 0 { // what it has kept for this caller. Others would take all before it has woken up
				var one []Range
				one, f.ids = cut(f.ids, 1)
				return one[0].First, nil
			}
			// A fetch that began after this caller came counts as the caller's own request: a refusal is final.
			own := !f.began.Before(came)
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

// advance makes the next piece the current one, if there is one.
func (p *Pool) advance() bool {
	if len(p.ahead) > 0 {
		c := p.ahead[0]
		p.ahead, p.kept = p.ahead[1:], p.kept-c.n
		p.arm(c)
		p.cur.Store(c)
		return true
	}
	return false
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
	if p.filling != nil {
		c.low.Store(c.n + 1)
	} else {
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
	p.mu.Lock()
	until := f.soonest
	p.mu.Unlock()
	if until.IsZero() {
		until = f.began.Add(noHurry)
	}
	ctx, cancel := p.bound(p.ctx)
	ranges, err := p.fetch(ctx, f.n, until)
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
	f.ids, ranges = cut(ranges, f.waiting)
	p.keep(ranges)
	p.adapt(f)
	if more := f.waiting - idspace.Total(f.ids); more > 0 {
		p.start(more)
	}
	p.look()
}

// keep adds IDs.
func (p *Pool) keep(ranges []Range) {
	var scattered *piece // of the ranges of one before this one
	for _, r := range ranges {
		p.kept += r.Len()
		if r.Len() == 1 && scattered != nil {
			scattered.ids = append(scattered.ids, r.First)
			scattered.n++
			continue
		}
		c := &piece{first: r.First, n: r.Len()}
		if scattered = nil; r.Len() == 1 {
			scattered, c.ids = c, []int64{r.First}
		}
		p.ahead = append(p.ahead, c)
	}
}

// refuse ends a pool of a strict tag. It drops IDs, should there be any, and returns the error of Next.
func (p *Pool) refuse() error {
	p.cur.Store(&piece{})
	p.ahead, p.kept = nil, 0
	if p.end == nil {
		tag := strings.TrimPrefix(p.from.subject, wire.SubjectSegment+".")
		p.end = badRequest("tag %s is strict, and IDs that a pool fetches ahead would not be in order: use Next or Take of "+
			"the client", tag)
	}
	return p.end
}

// adapt makes the distance follow the demand after a fetch.
func (p *Pool) adapt(f *fill) {
	switch {
	case p.hungry:
		p.distance = min(2*p.distance, p.most)
	case !p.filled.IsZero() && f.began.Sub(p.filled) >= idle:
		p.distance = max(p.distance/2, p.least)
	}
	p.hungry, p.filled = false, time.Now()
	p.want = p.distance / 2
}

// Close ends the pool and returns its unused IDs, which are gaps unless the caller uses them. Later calls return none.
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

package bus

import (
	"context"
	"errors"
	"strings"
	"sync"
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

// Pool keeps IDs in memory, so that Next needs no request. The first Next fetches the first IDs. When half of them are
// used, the pool fetches more in the background. How many it keeps follows the demand: the number doubles when callers
// had to wait, and halves when half of it lasted 10 s.
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
	least, most int64
	ctx         context.Context // of fetches
	cancel      context.CancelFunc
	running     sync.WaitGroup

	mu       sync.Mutex // guards all that follows
	ids      []Range
	left     int64     // how many they are
	distance int64     // how many to keep
	want     int64     // the next fetch starts when no more than this are left
	filling  *fill     // the fetch that is under way
	filled   time.Time // when the last fetch succeeded; zero: none has
	hungry   bool      // a caller had to wait since then
	end      error     // of each Next from now on: the pool is closed, or the tag is strict; nil: it works
}

// fill is a fetch.
type fill struct {
	began   time.Time
	waiting int64         // callers
	soonest time.Time     // the first deadline of a caller that waited when the request was made; zero: none had one
	done    chan struct{} // closed when the fetch has ended

	// Once the fetch has ended:
	err error
	ids []Range // for the callers that wait. Others would take all before these have woken up
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
	p := &Pool{from: s, least: leastAhead, most: mostAhead}
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
	return p, nil
}

// Next returns an ID that no other caller has. If the pool is empty, Next waits until the context is
// done or, without a deadline, for the client's [Timeout]. An error that no retry can fix is returned
// at once. Errors are those of [Client.Take], [ErrPoolClosed], and [BadRequest] if the tag is strict.
func (p *Pool) Next(ctx context.Context) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil && p.left > 0 {
		return p.take(), nil
	}
	came := time.Now()
	ctx, cancel := p.from.c.bound(ctx)
	defer cancel()
	for p.end == nil {
		if p.left > 0 {
			return p.take(), nil
		}
		if ctx.Err() != nil {
			return 0, p.from.gaveUp(ctx)
		}
		f := p.wait(ctx)
		if len(f.ids) > 0 {
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
	return 0, p.end
}

// take returns the next ID.
func (p *Pool) take() int64 {
	r := &p.ids[0]
	id := r.First
	if id == r.Last {
		p.ids = p.ids[1:]
	}
	r.First++
	p.left--
	p.look()
	return id
}

// wait waits until a fetch has ended, or the context is done. It releases the lock meanwhile.
func (p *Pool) wait(ctx context.Context) *fill {
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
	return f
}

// look starts a fetch if few IDs are left.
func (p *Pool) look() {
	if p.left <= p.want {
		p.start(1)
	}
}

// start returns the fetch that is under way. If there is none it starts one, for at least least IDs. It
// returns nil if the pool has ended.
func (p *Pool) start(least int64) *fill {
	if p.filling == nil && p.end == nil {
		n := min(max(p.distance-p.left, least), p.most)
		f := &fill{done: make(chan struct{}), began: time.Now()}
		p.filling = f
		p.running.Go(func() { p.run(f, n) })
	}
	return p.filling
}

// run fetches n IDs.
func (p *Pool) run(f *fill, n int64) {
	p.mu.Lock()
	until := f.soonest
	p.mu.Unlock()
	if until.IsZero() {
		until = f.began.Add(noHurry)
	}
	ctx, cancel := p.from.c.bound(p.ctx)
	ranges, err := p.fetch(ctx, n, until)
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
		p.want = p.left / 2
		return
	}
	f.ids, ranges = cut(ranges, f.waiting)
	p.ids = append(p.ids, ranges...)
	p.left += idspace.Total(ranges)
	p.adapt(f)
	if more := f.waiting - idspace.Total(f.ids); more > 0 {
		p.start(more)
	}
	p.look()
}

// refuse ends a pool of a strict tag. It drops IDs, should there be any, and returns the error of Next.
func (p *Pool) refuse() error {
	p.ids, p.left = nil, 0
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
	unused := p.ids
	p.ids, p.left = nil, 0
	return unused
}

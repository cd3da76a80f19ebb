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

var errEmpty = errors.New("the pool has no ID in memory")

// Pool keeps IDs in memory, so that Next needs no request. The first Next fetches the first IDs.
// When half of them are used, the pool fetches more in the background. How many it keeps follows
// the demand: the number doubles when callers had to wait, and halves when half of it lasted 10 s.
//
// The IDs in a pool are gaps if the process ends, at most as many as [Ahead] allows. They stay
// valid when an operator moves the tag's max_id.
//
// A pool of a strict tag is refused, because IDs that are fetched ahead would not be in order. The
// first answer says that a tag is strict. From then on each Next returns an *[Error] that matches
// [BadRequest], and the pool sends no more requests. The IDs of that answer are a gap. Use
// [Client.Next] or [Client.Take].
//
// The time in a snowflake of a pool is that of its fetch. Use [Client.NextSnowflake] where it must
// be that of the call.
//
// The methods are safe for concurrent use.
type Pool struct {
	from        *source
	least, most int64
	ctx         context.Context // of fetches
	cancel      context.CancelFunc
	running     sync.WaitGroup
	callers     groups // of those that found no ID in memory

	mu       sync.Mutex // guards all that follows
	ids      []Range
	left     int64         // how many they are
	distance int64         // how many to keep
	want     int64         // the next fetch starts when no more than this are left
	fetching chan struct{} // closed when the fetch that is under way has ended; nil: there is none
	filled   time.Time     // when the last fetch succeeded; zero: none has
	hungry   bool          // a caller had to wait since then
	closed   bool
}

// PoolOption changes how a [Pool] works.
type PoolOption func(*Pool)

// Ahead bounds how many IDs a pool keeps: least at the beginning, most under load, with
// 1 <= least <= most <= 2^40. Default: 100 and 1,000,000.
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

// Next returns an ID that no other caller has. If the pool is empty, Next waits for the fetch that
// is under way. If that fails, or other callers take all that it brings, Next asks as [Client.Next]
// does, and its errors are those. [ErrPoolClosed]: the pool is closed. [BadRequest]: the tag is
// strict.
func (p *Pool) Next(ctx context.Context) (int64, error) {
	p.mu.Lock()
	id, err := p.take()
	if err != errEmpty {
		p.mu.Unlock()
		return id, err
	}
	p.hungry = p.hungry || !p.filled.IsZero()
	p.look()
	fetching := p.fetching
	p.mu.Unlock()

	ctx, cancel := wire.Bound(ctx, p.from.c.timeout)
	defer cancel()
	select {
	case <-fetching:
	case <-ctx.Done():
		return 0, p.from.gaveUp(ctx)
	}
	p.mu.Lock()
	id, err = p.take()
	p.mu.Unlock()
	switch {
	case err != errEmpty:
		return id, err
	case ctx.Err() != nil:
		return 0, p.from.gaveUp(ctx)
	}
	id, err = p.from.c.next(ctx, &p.callers, "", func() (*source, error) { return p.from, nil })
	if p.from.strict.Load() {
		return 0, p.refusal()
	}
	return id, err
}

// take returns the next ID in memory.
func (p *Pool) take() (int64, error) {
	switch {
	case p.closed:
		return 0, ErrPoolClosed
	case p.from.strict.Load():
		return 0, p.refusal()
	case p.left == 0:
		return 0, errEmpty
	}
	r := &p.ids[0]
	id := r.First
	if id == r.Last {
		p.ids = p.ids[1:]
	}
	r.First++
	p.left--
	p.look()
	return id, nil
}

// refusal is the error of a pool of a strict tag.
func (p *Pool) refusal() error {
	return badRequest("tag %s is strict, and IDs that a pool fetches ahead would not be in order: use Next or Take of "+
		"the client", strings.TrimPrefix(p.from.subject, wire.SubjectSegment+"."))
}

// look starts a fetch if few IDs are left.
func (p *Pool) look() {
	if p.left <= p.want && p.fetching == nil && !p.closed {
		n := max(p.distance-p.left, 1)
		p.fetching = make(chan struct{})
		p.running.Go(func() { p.fetch(n) })
	}
}

// fetch fetches n IDs.
func (p *Pool) fetch(n int64) {
	began := time.Now()
	ctx, cancel := wire.Bound(p.ctx, p.from.c.timeout)
	defer cancel()
	ranges, err := p.from.some(ctx, n, request{until: began.Add(noHurry)})

	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.fetching)
	p.fetching = nil
	switch {
	case p.from.strict.Load():
		p.ids, p.left = nil, 0
	case err != nil:
		// Retry when half of the rest is used, so that a long outage costs few attempts. A caller
		// that finds the pool empty retries at once.
		p.want = p.left / 2
	default:
		p.ids = append(p.ids, ranges...)
		p.left += idspace.Total(ranges)
		p.adapt(began)
		p.look()
	}
}

// adapt makes the distance follow the demand after a fetch.
func (p *Pool) adapt(began time.Time) {
	switch {
	case p.hungry:
		p.distance = min(2*p.distance, p.most)
	case !p.filled.IsZero() && began.Sub(p.filled) >= idle:
		p.distance = max(p.distance/2, p.least)
	}
	p.hungry, p.filled = false, time.Now()
	p.want = p.distance / 2
}

// Close ends the pool and returns its unused IDs, which are gaps unless the caller uses them. Later
// calls return none. A Next that asks already, because the pool was empty, has its answer.
func (p *Pool) Close() []Range {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	unused := p.ids
	p.ids, p.left = nil, 0
	return unused
}

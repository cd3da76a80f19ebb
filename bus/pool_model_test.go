package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/leafbus/leafbus/internal/wire"
)

// TestPoolModel plays plans: generators that are slow, give less than was asked for, fail and go
// away, and callers of all kinds, in virtual time. What a caller may see, and what the pool may ask
// for and keep, follows from what happened. -rapid.checks says how many plans to try.
//
// No two things happen at the same instant unless they are meant to: callers come at whole
// microseconds, answers 500 ns later, contexts end 100 ns after either, and Close is at 250 ns.
func TestPoolModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plan := rapid.Custom(drawPoolPlan).Draw(t, "plan")
		var broken []error
		rapid.SyncTest(t, func(*rapid.T) { broken = playPool(plan) })
		if len(broken) > 0 {
			t.Fatal(errors.Join(broken[:min(len(broken), 5)]...))
		}
	})
}

// poolWorld is a plan that is played.
type poolWorld struct {
	poolPlan
	pool   *Pool
	source *source
	began  time.Time
	healed chan struct{} // closed: from now on generators answer soon

	handed, fetched atomic.Int64
	calling         atomic.Int64 // callers in Next

	mu      sync.Mutex
	broken  []error
	fetches []*poolFetch
	calls   []poolCall
	reasons []poolReason
	next    int64 // ID
}

// poolFetch is a request of the pool.
type poolFetch struct {
	n                    int64
	began, ended         time.Duration
	ranges               []Range
	err                  error
	over                 bool
	distance             int64 // when it began
	left, leftWhenFailed int64
}

// poolCall is a call of Next.
type poolCall struct {
	began, ended time.Duration
	end          time.Duration // of its context
	patience     poolPatience
	id           int64
	err          error
}

// poolReason is why there are no IDs, from a time on.
type poolReason struct {
	from time.Duration
	why  error // nil: it is not known that there are none
}

const poolForever = time.Duration(1) << 60

// playPool returns what was not as it should be.
func playPool(plan poolPlan) []error {
	client := NewClient(nil, Timeout(plan.Timeout))
	w := &poolWorld{
		poolPlan: plan, source: client.snowflakes(),
		began: time.Now(), healed: make(chan struct{}), next: 1, reasons: []poolReason{{from: -1}},
	}
	p, err := newPool(w.source, []PoolOption{Ahead(plan.Least, plan.Most)})
	if err != nil {
		return []error{err}
	}
	p.fetch = w.fetch
	w.pool = p

	var callers sync.WaitGroup
	over := make(chan struct{})
	for _, c := range plan.Callers {
		callers.Go(func() { w.call(c) })
	}
	go func() { callers.Wait(); close(over) }()
	healing := time.AfterFunc(plan.end()+time.Minute, func() { close(w.healed) })
	var unused []Range
	closing := make(chan struct{})
	if plan.CloseAt > 0 {
		go func() { defer close(closing); time.Sleep(plan.CloseAt); unused = w.close() }()
	}
	w.watch(over)
	if healing.Stop() {
		close(w.healed)
	}
	if plan.CloseAt > 0 {
		<-closing
	} else {
		w.recover()
		w.align(time.Microsecond)
		unused = w.close()
	}
	w.checkClosed()
	w.checkIDs(unused)
	w.checkCalls()
	w.checkFetches()
	return w.broken
}

// now is how long it lasts.
func (w *poolWorld) now() time.Duration { return time.Since(w.began) }

// fail notes what is not as it should be.
func (w *poolWorld) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, fmt.Errorf("after %v: %w", w.now(), fmt.Errorf(format, args...)))
}

// fetch plays the generators, and the client that asks them.
func (w *poolWorld) fetch(ctx context.Context, n int64, _ time.Time) (ranges []Range, err error) {
	p := w.pool
	p.mu.Lock()
	f := &poolFetch{n: n, began: w.now(), distance: p.distance, left: p.left}
	p.mu.Unlock()
	w.mu.Lock()
	if k := len(w.fetches); k > 0 && !w.fetches[k-1].over {
		w.broken = append(w.broken, errors.New("two fetches at a time"))
	}
	answer := w.Answers[len(w.fetches)%len(w.Answers)]
	w.fetches = append(w.fetches, f)
	select {
	case <-w.healed:
		answer = poolAnswer{Delay: time.Millisecond, Parts: 1, Share: 100}
	default:
	}
	w.mu.Unlock()

	err = w.outage(ctx)
	if err == nil {
		ranges, err = w.answer(ctx, answer, n)
	}
	p.mu.Lock()
	f.leftWhenFailed = p.left
	p.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	f.ended, f.ranges, f.err, f.over = w.now(), ranges, err, true
	return ranges, err
}

// outage waits as long as there are no generators.
func (w *poolWorld) outage(ctx context.Context) error {
	for _, o := range slices.Concat(w.Outages, w.Outages, w.Outages) { // they may overlap
		if now := w.now(); now < o.From || now >= o.To {
			continue
		}
		why := fmt.Errorf("an outage: %w", nats.ErrNoResponders)
		w.reason(why)
		select {
		case <-ctx.Done():
			return wire.GaveUp(ctx, why)
		case <-w.healed:
			return nil
		case <-time.After(o.To - w.now()):
		}
	}
	return nil
}

// reason notes why there are no IDs, as a source does.
func (w *poolWorld) reason(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reasons = append(w.reasons, poolReason{w.now(), why})
	if why == nil {
		w.source.why.Store(nil)
	} else {
		w.source.why.Store(&why)
	}
}

func (w *poolWorld) answer(ctx context.Context, a poolAnswer, n int64) ([]Range, error) {
	at := (w.now() + a.Delay + time.Microsecond).Truncate(time.Microsecond) + 500
	select {
	case <-time.After(at - w.now()):
	case <-ctx.Done():
		if !a.Late || a.Does != poolGives {
			why := fmt.Errorf("no answer: %w", ctx.Err())
			w.reason(why)
			return nil, wire.GaveUp(ctx, why)
		}
	}
	refuse := func(why error) ([]Range, error) {
		if retryable(why) { // as the client, which notes why it asks again
			w.reason(why)
		}
		return nil, why
	}
	switch a.Does {
	case poolUnavailable:
		return refuse(&Error{Code: 503, Reason: StoreUnavailable, Message: "unplugged"})
	case poolNoResponders:
		return refuse(fmt.Errorf("nobody: %w", nats.ErrNoResponders))
	case poolDeadline:
		return refuse(fmt.Errorf("no answer: %w", context.DeadlineExceeded))
	case poolUnknownTag:
		return refuse(&Error{Code: 404, Reason: UnknownTag, Message: "no such tag"})
	}
	w.reason(nil)
	n = max(n*a.Share/100, 1)
	if a.Apart {
		a.Parts = n
	}
	return w.give(n, a.Parts), nil
}

// give makes n IDs, in as many ranges.
func (w *poolWorld) give(n, parts int64) (ranges []Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetched.Add(n)
	for ; n > 0; parts-- {
		size := n
		if parts > 1 {
			size = (n + parts - 1) / parts
		}
		ranges = append(ranges, Range{First: w.next, Last: w.next + size - 1})
		w.next += size + 5
		n -= size
	}
	return ranges
}

// call is a caller.
func (w *poolWorld) call(c poolCaller) {
	var calls []poolCall
	time.Sleep(c.Start)
	for range c.Rounds {
		for range c.Burst {
			ctx, end, cancel := w.context(c)
			call := poolCall{began: w.now(), end: end, patience: c.Patience}
			w.calling.Add(1)
			call.id, call.err = w.pool.Next(ctx)
			w.calling.Add(-1)
			call.ended = w.now()
			cancel()
			calls = append(calls, call)
			if call.err != nil {
				w.align(0)
			} else {
				w.handed.Add(1)
			}
		}
		w.align(c.Pause)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, calls...)
}

// align sleeps until a whole microsecond.
func (w *poolWorld) align(pause time.Duration) {
	at := (w.now() + pause).Truncate(time.Microsecond)
	if at < w.now() {
		at += time.Microsecond
	}
	time.Sleep(at - w.now())
}

func (w *poolWorld) context(c poolCaller) (context.Context, time.Duration, context.CancelFunc) {
	bound := poolForever
	if w.Timeout > 0 {
		bound = w.now() + w.Timeout
	}
	end := w.now() + c.After
	switch c.Patience {
	case poolDeadlined:
		ctx, cancel := context.WithTimeout(context.Background(), c.After)
		return ctx, end, cancel
	case poolCancelled:
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(c.After, cancel)
		return ctx, min(end, bound), func() { timer.Stop(); cancel() }
	case poolHasEnded:
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx, w.now(), cancel
	}
	return context.Background(), bound, func() {}
}

// watch looks at the pool when nothing moves, until the callers are gone.
func (w *poolWorld) watch(over <-chan struct{}) {
	var end time.Duration
	for _, c := range w.Callers {
		end = max(end, c.Start+time.Duration(c.Rounds)*c.Pause)
	}
	step := (end/150 + time.Millisecond).Truncate(time.Microsecond) + 50
	for n := 0; ; n++ {
		select {
		case <-over:
			return
		case <-time.After(step):
		}
		synctest.Wait()
		w.checkStill()
	}
}

// recover lets callers come when the generators answer again: all get IDs.
func (w *poolWorld) recover() {
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() {
			w.align(0)
			for range 3 * w.Least {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				call := poolCall{began: w.now(), end: w.now() + time.Minute, patience: poolDeadlined}
				call.id, call.err = w.pool.Next(ctx)
				call.ended = w.now()
				cancel()
				if call.err != nil && retryable(call.err) {
					w.fail("it does not recover: %w", call.err)
				}
				if call.err == nil {
					w.handed.Add(1)
				}
				w.mu.Lock()
				w.calls = append(w.calls, call)
				w.mu.Unlock()
				if call.err != nil {
					w.align(0)
				}
			}
		})
	}
	callers.Wait()
	synctest.Wait()
	w.checkStill()
}

// close closes the pool twice at a time.
func (w *poolWorld) close() []Range {
	var both [2][]Range
	var closers sync.WaitGroup
	at := w.now()
	for i := range both {
		closers.Go(func() { both[i] = w.pool.Close() })
	}
	closers.Wait()
	if w.now() != at {
		w.fail("Close took %v", w.now()-at)
	}
	w.CloseAt = at
	if len(both[0]) > 0 && len(both[1]) > 0 {
		w.fail("both calls of Close returned IDs: %v", both)
	}
	return slices.Concat(both[0], both[1])
}

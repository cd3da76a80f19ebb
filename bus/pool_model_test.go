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

// poolPlan is what happens around a pool.
type poolPlan struct {
	Least, Most     int64
	MaxAge, Timeout time.Duration
	Answers         []poolAnswer // in turn, then again from the first
	Outages         []poolOutage
	Callers         []poolCaller
	CloseAt         time.Duration // 0: when all have what they want
}

// poolAnswer is what generators do with a request.
type poolAnswer struct {
	Delay time.Duration
	Does  poolDeed
	Parts int64 // how many ranges they answer
	Share int64 // what they give, in percent of what was asked for
	Late  bool  // they answer also in the moment in which nobody waits any more
}

type poolDeed int

// What generators do.
const (
	poolGives poolDeed = iota
	poolUnavailable
	poolNoResponders
	poolDeadline
	poolUnknownTag
)

// poolOutage is a time without generators.
type poolOutage struct{ From, To time.Duration }

// poolCaller comes in bursts.
type poolCaller struct {
	Start, Pause  time.Duration
	Rounds, Burst int
	Patience      poolPatience
	After         time.Duration // until its context ends
}

type poolPatience int

// How the context of a caller ends.
const (
	poolNever poolPatience = iota
	poolDeadlined
	poolCancelled
	poolHasEnded // before the call
)

func drawPoolPlan(t *rapid.T) poolPlan {
	between := func(name string, from, to time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(int64(from/time.Microsecond), int64(to/time.Microsecond)).Draw(t, name)) * time.Microsecond
	}
	some := func(name string, from, most int) int { return rapid.IntRange(from, most).Draw(t, name) }
	pick := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(t, name) }
	wait := func(name string) time.Duration {
		switch pick(name, 0, 1, 1, 2, 3) {
		case 0:
			return between("µs", time.Microsecond, time.Millisecond)
		case 1:
			return between("ms", time.Millisecond, 100*time.Millisecond)
		case 2:
			return between("s", 100*time.Millisecond, 2*time.Second)
		}
		return between("10 s", 2*time.Second, 10*time.Second)
	}

	p := poolPlan{
		Least:   int64(pick("least", 1, 2, 10, 100)),
		Timeout: rapid.SampledFrom([]time.Duration{DefaultTimeout, 50 * time.Millisecond, 0}).Draw(t, "timeout"),
	}
	p.Most = p.Least * int64(pick("most", 1, 2, 7, 50))
	if p.Timeout > 0 {
		p.Timeout += 100 // see above
	}
	if some("aging", 0, 2) == 0 {
		p.MaxAge = between("max age", 10*time.Millisecond, 3*time.Second)
	}
	for range some("answers", 1, 12) {
		a := poolAnswer{
			Delay: wait("delay"),
			Does:  poolDeed(pick("does", 0, 0, 0, 0, 0, 1, 2, 3, 4)),
			Parts: int64(some("parts", 1, 4)),
			Share: int64(pick("share", 100, 100, 100, 50, 1)),
			Late:  rapid.Bool().Draw(t, "late"),
		}
		if a.Does != poolGives && a.Does != poolUnknownTag {
			a.Delay += 100 * time.Millisecond // the client has tried again and again
		}
		p.Answers = append(p.Answers, a)
	}
	for range some("callers", 1, 50) {
		c := poolCaller{
			Start: between("start", 0, 20*time.Second), Pause: wait("pause"), Rounds: some("rounds", 1, 10), Burst: some("burst", 1, 12),
			Patience: poolPatience(pick("patience", 0, 0, 1, 2, 3)), After: wait("after") + 100,
		}
		if pick("idle", 0, 0, 0, 1) == 1 {
			c.Pause += 30 * time.Second
		}
		p.Callers = append(p.Callers, c)
	}
	end := p.end()
	for range some("outages", 0, 3) {
		from := between("from", 0, end)
		p.Outages = append(p.Outages, poolOutage{from, from + wait("length")*time.Duration(pick("times", 1, 1, 20))})
	}
	if rapid.Bool().Draw(t, "close early") {
		p.CloseAt = between("close", 0, end) + 250
	}
	return p
}

// end is when callers would have what they want if they never waited.
func (p poolPlan) end() (end time.Duration) {
	for _, c := range p.Callers {
		end = max(end, c.Start+time.Duration(c.Rounds)*c.Pause)
	}
	return end
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
	began, asked, ended  time.Duration
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
	p, err := newPool(w.source, plan.MaxAge, []PoolOption{Ahead(plan.Least, plan.Most)})
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
func (w *poolWorld) fetch(ctx context.Context, n int64) (ranges []Range, asked time.Time, err error) {
	p := w.pool
	p.mu.Lock()
	f := &poolFetch{n: n, began: w.now(), distance: p.distance, left: p.left()}
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
	asked, f.asked = time.Now(), w.now()
	if err == nil {
		ranges, err = w.answer(ctx, answer, n)
	}
	p.mu.Lock()
	f.leftWhenFailed = p.left()
	p.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	f.ended, f.ranges, f.err, f.over = w.now(), ranges, err, true
	return ranges, asked, err
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
			return gaveUp(ctx, why)
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
			return nil, gaveUp(ctx, why)
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
	return w.give(max(n*a.Share/100, 1), a.Parts), nil
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

// checkStill checks what holds whenever all goroutines wait.
func (w *poolWorld) checkStill() {
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	var ahead, fresh int64
	for _, c := range p.ahead {
		ahead += c.n
		if !p.old(c.born) {
			fresh += c.n
		}
	}
	c := p.cur.Load()
	if !p.old(c.born) {
		fresh += max(c.n-c.taken.Load(), 0)
	}
	w.mu.Lock()
	var last *poolFetch
	if len(w.fetches) > 0 {
		last = w.fetches[len(w.fetches)-1]
	}
	w.mu.Unlock()
	left, coming, waiting := p.left(), int64(0), w.calling.Load()
	if p.filling != nil {
		coming = last.n
	}
	switch {
	case p.closed:
	case p.distance < p.least || p.distance > p.most:
		w.fail("the distance is %d, not within %d to %d", p.distance, p.least, p.most)
	case ahead != p.kept:
		w.fail("it thinks that it keeps %d IDs, and keeps %d", p.kept, ahead)
	case left+coming > p.most:
		w.fail("it keeps %d IDs and has asked for %d, and may keep %d", left, coming, p.most)
	case w.MaxAge == 0 && left != w.fetched.Load()-w.handed.Load():
		w.fail("%d IDs were fetched and %d handed out, and it has %d", w.fetched.Load(), w.handed.Load(), left)
	case waiting > 0 && p.filling == nil:
		w.fail("%d callers wait for nothing", waiting)
	case waiting > 0 && fresh > 0:
		w.fail("%d callers wait while there are %d IDs", waiting, fresh)
	case w.MaxAge == 0 && p.filling == nil && last != nil && last.err == nil && left <= p.distance/2:
		w.fail("it has %d IDs of %d and does not fetch more", left, p.distance)
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

// checkClosed checks what is after Close.
func (w *poolWorld) checkClosed() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, ctx := range []context.Context{context.Background(), ended} {
		at := w.now()
		if id, err := w.pool.Next(ctx); !errors.Is(err, ErrPoolClosed) || w.now() != at {
			w.fail("after Close: Next: %d, %v", id, err)
		}
	}
	if again := w.pool.Close(); len(again) > 0 {
		w.fail("Close again: %v", again)
	}
}

// checkIDs checks that each ID that was fetched went one way.
func (w *poolWorld) checkIDs(unused []Range) {
	type fetchedRange struct {
		Range
		asked time.Duration
		seen  int64
	}
	var ranges []fetchedRange // in increasing order
	for _, f := range w.fetches {
		for _, r := range f.ranges {
			ranges = append(ranges, fetchedRange{r, f.asked, 0})
		}
	}
	find := func(id int64) *fetchedRange {
		i, found := slices.BinarySearchFunc(ranges, id, func(r fetchedRange, id int64) int {
			switch {
			case r.Last < id:
				return -1
			case r.First > id:
				return 1
			}
			return 0
		})
		if !found {
			return nil
		}
		return &ranges[i]
	}
	seen := make(map[int64]string)
	note := func(id int64, where string) *fetchedRange {
		if before := seen[id]; before != "" {
			w.fail("%d: %s, and %s", id, before, where)
		}
		seen[id] = where
		r := find(id)
		if r == nil {
			w.fail("%d: %s, and was not fetched", id, where)
			return nil
		}
		r.seen++
		return r
	}
	for _, c := range w.calls {
		if c.err != nil {
			continue
		}
		if r := note(c.id, "handed out"); r != nil && w.MaxAge > 0 && c.ended-r.asked > w.MaxAge && r.asked < c.began {
			w.fail("%d is handed out %v after it was asked for, and may be %v", c.id, c.ended-r.asked, w.MaxAge)
		}
	}
	for _, r := range unused {
		if r.Len() < 1 {
			w.fail("Close returned %v", r)
			continue
		}
		for id := range r.All() {
			note(id, "returned by Close")
		}
	}
	for _, r := range ranges {
		if r.seen < r.Len() && (w.MaxAge == 0 || w.now()-r.asked <= w.MaxAge) {
			w.fail("%d of the IDs %v are lost", r.Len()-r.seen, r.Range)
		}
	}
}

// checkCalls checks what callers were told, and when.
func (w *poolWorld) checkCalls() {
	for _, c := range w.calls {
		end := max(c.end, c.began)
		switch {
		case c.ended > end:
			w.fail("a call of %v was answered at %v, its context ended at %v", c.began, c.ended, end)
		case c.ended > max(w.CloseAt, c.began):
			w.fail("a call of %v was answered at %v, Close was at %v", c.began, c.ended, w.CloseAt)
		case c.err == nil:
		case errors.Is(c.err, ErrPoolClosed):
			if c.ended < w.CloseAt {
				w.fail("a call of %v was told at %v that the pool is closed, which it was at %v", c.began, c.ended, w.CloseAt)
			}
		case w.ofFetch(c):
		default:
			w.checkGaveUp(c, end)
		}
		for _, f := range w.fetches {
			if f.began > c.began && f.over && f.ended < c.ended && f.err != nil && !retryable(f.err) {
				w.fail("a call of %v was not told at %v: %w", c.began, f.ended, f.err)
			}
		}
	}
}

// ofFetch reports whether a call's error is that of a fetch that may be told.
func (w *poolWorld) ofFetch(c poolCall) bool {
	for _, f := range w.fetches {
		if f.err == c.err && !retryable(f.err) && !errors.Is(f.err, context.Canceled) && f.began >= c.began && f.ended == c.ended {
			return true
		}
	}
	return false
}

func (w *poolWorld) checkGaveUp(c poolCall, end time.Duration) {
	if c.ended != end {
		w.fail("a call of %v gave up at %v, its context ended at %v: %w", c.began, c.ended, end, c.err)
	}
	of := context.DeadlineExceeded
	if c.patience == poolHasEnded || c.patience == poolCancelled && c.end-c.began != w.Timeout {
		of = context.Canceled
	}
	if !errors.Is(c.err, of) {
		w.fail("a call whose context ended with %w was told: %w", of, c.err)
	}
	var why []error // those of that moment
	for _, r := range w.reasons {
		if r.from < c.ended {
			why = why[:0]
		}
		if r.from <= c.ended {
			why = append(why, r.why)
		}
	}
	if len(why) > 0 && !slices.ContainsFunc(why, func(why error) bool { return why == nil || errors.Is(c.err, why) }) {
		w.fail("a call that gave up was not told why, which is %w, but: %w", errors.Join(why...), c.err)
	}
}

// checkFetches checks how much the pool asked for, and when.
func (w *poolWorld) checkFetches() {
	var last *poolFetch // the last that succeeded
	distance := w.Least
	for i, f := range w.fetches {
		if f.n < 1 || f.n > w.Most || f.began >= w.CloseAt {
			w.fail("%d IDs are asked for at %v; %d may be kept, and Close was at %v", f.n, f.began, w.Most, w.CloseAt)
		}
		if i > 0 && w.MaxAge == 0 {
			if before := w.fetches[i-1]; before.err != nil && f.left > before.leftWhenFailed/2 {
				w.fail("after an attempt failed with %d IDs left there is another with %d", before.leftWhenFailed, f.left)
			} else if before.err == nil && f.left > f.distance/2 {
				w.fail("%d IDs are asked for when there are %d of %d", f.n, f.left, f.distance)
			}
		}
		if f.err != nil {
			continue
		}
		w.checkServed(f)
		after := w.pool.distance
		if i+1 < len(w.fetches) {
			after = w.fetches[i+1].distance
		}
		want := distance
		waited := last != nil && slices.ContainsFunc(w.calls, func(c poolCall) bool {
			return c.began < f.ended && c.ended > last.ended && c.ended > c.began
		})
		long := last != nil && f.began-last.ended >= 10*time.Second
		switch {
		case waited:
			want = min(2*distance, w.Most)
		case long:
			want = max(distance/2, w.Least)
		}
		// What was discarded for its age is not known from outside.
		if after != want && (w.MaxAge == 0 || after != max(distance/2, w.Least)) {
			w.fail("a fetch from %v to %v, callers waited: %v, half lasted long: %v: the distance was %d and is %d", f.began, f.ended, waited, long, distance, after)
		}
		last, distance = f, after
	}
}

// checkServed checks that what a fetch brought went to those who waited for it.
func (w *poolWorld) checkServed(f *poolFetch) {
	if w.MaxAge > 0 || f.ended >= w.CloseAt { // it may have come too late
		return
	}
	var waited, served int64
	for _, c := range w.calls {
		if c.began == f.ended { // it may have been among those who waited, or not
			return
		}
		if c.began < f.ended && c.ended >= f.ended {
			if c.end == f.ended { // it may have left, or not
				return
			}
			waited++
			if c.ended == f.ended && c.err == nil {
				served++
			}
		}
	}
	if want := min(waited, total(f.ranges)); served < want {
		w.fail("%d callers waited when %d IDs came at %v, and %d got one", waited, total(f.ranges), f.ended, served)
	}
}

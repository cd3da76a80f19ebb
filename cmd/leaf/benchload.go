package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// getter gets IDs. It may use the memory of its last answer, spare, for the next.
type getter func(ctx context.Context, spare []bus.Range) ([]bus.Range, error)

// load is callers that get IDs, and what came of it.
type load struct {
	cfg     *benchFlags
	get     getter
	callers []*caller
	seen    runs

	begin, end time.Time
	turns      atomic.Int64 // requests that were given to callers, where they are counted
	elapsed    time.Duration
	stopped    atomic.Pointer[string] // why it ended early
}

// caller is who makes one request after the other. What it counts is its own,
// so that callers do not disturb each other.
type caller struct {
	latency  *hdrhistogram.Histogram // ns
	failures map[string]*failure
	ids      []bus.Range   // not in seen yet
	taken    int64         // IDs
	adding   time.Duration // IDs to seen
	requests atomic.Int64  // answered with IDs
	_        [64]byte      // the next one's counter is in another cache line
}

// failure is requests that failed alike.
type failure struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
	First  string `json:"first"` // the first one's error
}

// How many runs a caller collects before it compares them with those of the others: many
// at a time are cheap, and those of all callers shall not need more than 40 MiB.
const (
	allHeld   = 1 << 20
	leastHeld = 1 << 8
	mostHeld  = 1 << 12
)

func newLoad(f *benchFlags, get getter) *load {
	l := &load{cfg: f, get: get, callers: make([]*caller, f.callers)}
	for i := range l.callers {
		l.callers[i] = &caller{latency: newLatencies(), failures: make(map[string]*failure)}
	}
	return l
}

// newLatencies holds durations up to a day, in ns.
func newLatencies() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(24*time.Hour), 2)
}

// first makes a request that is not measured: it tells what no later request would get
// either, and the first segment or pool is then there.
func (l *load) first(ctx context.Context) error {
	ids, err := l.get(ctx, nil)
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case err != nil:
		return err
	}
	l.seen.add(ids)
	return nil
}

// run makes the load.
func (l *load) run(ctx context.Context) {
	l.begin = time.Now()
	l.end = l.begin.Add(l.cfg.duration)
	var callers sync.WaitGroup
	for _, c := range l.callers {
		callers.Go(func() {
			l.work(ctx, c)
			l.add(c)
		})
	}
	callers.Wait()
	l.elapsed = time.Since(l.begin)
	if ctx.Err() != nil {
		l.stop("interrupted")
	}
}

// stop ends the load early.
func (l *load) stop(why string) { l.stopped.CompareAndSwap(nil, &why) }

// work is a caller's.
func (l *load) work(ctx context.Context, c *caller) {
	held := min(max(allHeld/len(l.callers), leastHeld), mostHeld)
	var spare []bus.Range
	for now := time.Now(); ; {
		start, ok := l.turn(ctx, now)
		if !ok {
			return
		}
		ids, err := l.get(ctx, spare)
		now = time.Now()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return
		case errors.Is(err, nats.ErrConnectionClosed):
			l.stop("the connection is lost")
			fallthrough
		default:
			c.fail(err)
			continue
		}
		spare = ids[:0]
		c.latency.RecordValue(int64(now.Sub(start)))
		c.requests.Store(c.requests.Load() + 1)
		c.keep(ids)
		if len(c.ids) >= held {
			l.add(c)
			later := time.Now()
			c.adding += later.Sub(now)
			now = later
		}
	}
}

// turn waits until a caller's next request is due, and returns when that was: before
// now, if no caller was free then.
func (l *load) turn(ctx context.Context, now time.Time) (due time.Time, ok bool) {
	if !now.Before(l.end) || l.stopped.Load() != nil || ctx.Err() != nil {
		return now, false
	}
	if l.cfg.rate == 0 && l.cfg.requests == 0 {
		return now, true // no counter that all share
	}
	i := l.turns.Add(1) - 1
	if l.cfg.requests > 0 && i >= l.cfg.requests {
		return now, false
	}
	if l.cfg.rate == 0 {
		return now, true
	}
	after := float64(i) / l.cfg.rate // s
	if after >= l.cfg.duration.Seconds() {
		return now, false
	}
	due = l.begin.Add(time.Duration(after * float64(time.Second)))
	wait := due.Sub(now)
	if wait <= 0 {
		return due, true
	}
	select {
	case <-ctx.Done():
		return now, false
	case <-time.After(wait):
		return time.Now(), true // that the timer was late is not the request's fault
	}
}

// unsent is how many requests were due and not made, because no caller was free.
func (l *load) unsent() int64 {
	if l.cfg.rate == 0 || l.stopped.Load() != nil {
		return 0
	}
	due := int64(min(l.elapsed, l.cfg.duration).Seconds() * l.cfg.rate)
	if l.cfg.requests > 0 {
		due = min(due, l.cfg.requests)
	}
	return max(due-l.turns.Load(), 0)
}

// keep remembers IDs.
func (c *caller) keep(ids []bus.Range) {
	for _, r := range ids {
		c.taken += r.Len()
		c.ids = allocator.AppendRange(c.ids, r)
	}
}

// add compares a caller's IDs with all others. Whoever adds some does the work and is
// no caller meanwhile: a check that cannot keep up slows the load, and needs no queue.
func (l *load) add(c *caller) {
	if !l.seen.add(c.ids) {
		l.stop(fmt.Sprintf("the IDs are in more than %d runs, which is all that is remembered", mostRuns))
	}
	c.ids = c.ids[:0]
}

// fail counts a request that failed.
func (c *caller) fail(err error) {
	kind := errorKind(err)
	f := c.failures[kind]
	if f == nil {
		f = &failure{Reason: kind, First: err.Error()}
		c.failures[kind] = f
	}
	f.Count++
}

// watch shows on a terminal how far the load is. What it returns ends that.
func (l *load) watch(w io.Writer) (stop func()) {
	p := newProgress(w, 0)
	if p.w == nil {
		return func() {}
	}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		looks := time.NewTicker(progressEvery)
		defer looks.Stop()
		defer p.end()
		for last := int64(0); ; {
			select {
			case <-done:
				return
			case <-looks.C:
			}
			var sum int64
			for _, c := range l.callers {
				sum += c.requests.Load()
			}
			p.shown = true
			since := time.Since(p.start).Round(time.Second)
			fmt.Fprintf(w, "\r\x1b[K%v of %v, %d requests, %.0f/s", since, l.cfg.duration, sum, float64(sum-last)/progressEvery.Seconds())
			last = sum
		}
	})
	return func() { close(done); watching.Wait() }
}

package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// pools compares a pool's Next with the addition that any counter needs, made in
// place and in a function that is called, while the pool is filled over NATS. A call is far shorter than it takes to time it, so
// calls are timed, one by one, in passes of their own, and so are the additions:
// what the clock and the machine cost is in both.
func pools(ctx context.Context, p plan) (t *table, err error) {
	// A step of at least the usual batch: else each costs a write to the store.
	tag := allocator.Tag{Name: "bench", MaxID: 1, Step: bus.DefaultMostAhead}
	s, stop, err := openWith(tag)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	nc, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // for a deadline: see waits
	defer cancel()

	t = newTable("pool of a tag's IDs", "goroutines", "ns/ID", "atomic add's", "of its speed", "called add's", "of its speed", "allocations", "waits per million IDs",
		"p50 ns, timed", "atomic add's", "p99.99 ns, timed", "atomic add's", "ratio")
	for _, goroutines := range []int{1, 2} {
		pool, err := bus.NewClient(nc).Pool(tag.Name)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		var counter, taken atomic.Int64
		waited := &waits{Context: ctx}
		bare := p.benchmark(goroutines, func(n int) error { return add(&counter, n) })
		called := p.benchmark(goroutines, func(n int) error { return addCalled(&counter, n) })
		next := p.benchmark(goroutines, func(n int) error { taken.Add(int64(n)); return draw(waited, pool, n) })
		bareTimed := timed(goroutines, p.duration, func() error { counter.Add(1); return nil })
		nextTimed := timed(goroutines, p.duration, func() error { _, err := pool.Next(ctx); return err })

		if _, err := next(); err != nil { // so that the pool keeps as many as it takes
			return nil, err
		}
		taken.Store(0)
		waited.n.Store(0)
		rounds := max(1, p.rounds/2) // a measurement of these takes twice as long as others
		results, err := inTurns(ctx, rounds, []func() (testing.BenchmarkResult, error){bare, called, next})
		if err != nil {
			return nil, err
		}
		times, err := inTurns(ctx, rounds, []func() (*hdrhistogram.Histogram, error){bareTimed, nextTimed})
		if err != nil {
			return nil, err
		}
		base, calls, ours, baseTimes, ourTimes := results[0], results[1], results[2], times[0], times[1]
		t.add("Next", strconv.Itoa(goroutines), tenths(median(ours, nsPerOp)), tenths(median(base, nsPerOp)),
			hundredths(ratio(base, ours, nsPerOp)), tenths(median(calls, nsPerOp)), hundredths(ratio(calls, ours, nsPerOp)), whole(median(ours, allocsPerOp)),
			hundredths(float64(waited.n.Load())/float64(taken.Load())*1e6),
			whole(median(ourTimes, half)), whole(median(baseTimes, half)),
			whole(median(ourTimes, slowest)), whole(median(baseTimes, slowest)), hundredths(ratio(ourTimes, baseTimes, slowest)))
	}
	return t, nil
}

// addCalled adds as a function does that the compiler cannot put in its caller's
// place.
func addCalled(counter *atomic.Int64, n int) error {
	for range n {
		addOne(counter)
	}
	return nil
}

//go:noinline
func addOne(counter *atomic.Int64) int64 { return counter.Add(1) }

// draw takes IDs one by one.
func draw(ctx context.Context, pool *bus.Pool, n int) error {
	for range n {
		if _, err := pool.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waits is a context that counts who waits: a pool asks for a deadline only
// then, and finding one it does not ask again.
type waits struct {
	context.Context
	n atomic.Int64
}

// Deadline implements [context.Context].
func (w *waits) Deadline() (time.Time, bool) {
	w.n.Add(1)
	return w.Context.Deadline()
}

// timed times calls, each by itself, made in so many goroutines at once for d.
func timed(goroutines int, d time.Duration, call func() error) func() (*hdrhistogram.Histogram, error) {
	return func() (*hdrhistogram.Histogram, error) {
		all := make([]*hdrhistogram.Histogram, goroutines)
		failed := make([]error, goroutines)
		var wg sync.WaitGroup
		begin := time.Now()
		for i := range goroutines {
			all[i] = hdrhistogram.New(1, int64(time.Minute), 2)
			wg.Go(func() {
				var before time.Duration
				for before < d && failed[i] == nil {
					failed[i] = call()
					now := time.Since(begin) // costs half of what Now does
					if err := all[i].RecordValue(int64(now - before)); err != nil {
						failed[i] = err
					}
					before = now
				}
			})
		}
		wg.Wait()
		for _, h := range all[1:] {
			all[0].Merge(h)
		}
		return all[0], errors.Join(failed...)
	}
}

// The fields of a histogram.
func half(h *hdrhistogram.Histogram) float64    { return float64(h.ValueAtQuantile(50)) }
func slowest(h *hdrhistogram.Histogram) float64 { return float64(h.ValueAtQuantile(99.99)) }

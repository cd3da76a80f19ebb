package main

import (
	"context"
	"flag"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

const inProcessTag = "bench"

// inProcess compares the allocator, over a store in memory, with the addition
// that any counter needs. Times are those of all goroutines together: so long
// after one ID comes the next.
func inProcess(ctx context.Context, p plan) (*table, error) {
	store := allocatortest.NewMemory()
	if _, err := store.Create(ctx, allocator.Tag{Name: inProcessTag, MaxID: 1, Step: allocator.DefaultStep}); err != nil {
		return nil, err
	}
	alloc := allocator.New(allocator.Config{Store: store})
	running, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { alloc.Run(running) })
	defer wg.Wait()
	defer stop()

	t := newTable("in process, one ID", "goroutines", "ns/ID", "atomic add's", "ratio", "allocations")
	for _, goroutines := range []int{1, 2} {
		var counter atomic.Int64
		results, err := inTurns(ctx, p.rounds, []func() (testing.BenchmarkResult, error){
			p.benchmark(goroutines, func(n int) error { return add(&counter, n) }),
			p.benchmark(goroutines, func(n int) error { return request(ctx, alloc, n) }),
			p.benchmark(goroutines, func(n int) error { return take(ctx, alloc, n) }),
		})
		if err != nil {
			return nil, err
		}
		base := results[0]
		for i, name := range []string{"Request, into the caller's memory", "Take"} {
			ours := results[i+1]
			t.add(name, strconv.Itoa(goroutines), tenths(median(ours, nsPerOp)), tenths(median(base, nsPerOp)),
				tenths(ratio(ours, base, nsPerOp)), whole(median(ours, allocsPerOp)))
		}
	}
	return t, nil
}

// benchmark measures loop, which does something n times, in so many goroutines
// at once.
func (p plan) benchmark(goroutines int, loop func(n int) error) func() (testing.BenchmarkResult, error) {
	return func() (testing.BenchmarkResult, error) {
		testing.Init() // testing.Benchmark takes its duration from a flag
		if err := flag.Set("test.benchtime", p.duration.String()); err != nil {
			return testing.BenchmarkResult{}, err
		}
		var failed atomic.Pointer[error]
		result := testing.Benchmark(func(b *testing.B) {
			var wg sync.WaitGroup
			for i := range goroutines {
				wg.Go(func() {
					if err := loop((b.N + i) / goroutines); err != nil {
						failed.Store(&err)
					}
				})
			}
			wg.Wait()
		})
		if err := failed.Load(); err != nil {
			return testing.BenchmarkResult{}, *err
		}
		return result, nil
	}
}

func add(counter *atomic.Int64, n int) error {
	for range n {
		counter.Add(1)
	}
	return nil
}

// request takes IDs as the service does: from memory, or else it waits.
func request(ctx context.Context, alloc *allocator.Allocator, n int) error {
	var room [4]allocator.Range
	for range n {
		_, waiter, err := alloc.Request(room[:0], inProcessTag, 1)
		if waiter != nil {
			_, err = waiter.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func take(ctx context.Context, alloc *allocator.Allocator, n int) error {
	for range n {
		if _, err := alloc.Take(ctx, inProcessTag, 1); err != nil {
			return err
		}
	}
	return nil
}

// The fields of a testing.BenchmarkResult.
func nsPerOp(r testing.BenchmarkResult) float64     { return float64(r.T.Nanoseconds()) / float64(r.N) }
func allocsPerOp(r testing.BenchmarkResult) float64 { return float64(r.AllocsPerOp()) }

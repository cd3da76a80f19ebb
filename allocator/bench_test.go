package allocator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// endless is a store that has every tag and costs nothing. It keeps nothing
// but one number for all.
type endless struct {
	allocator.Store
	step int64
	next atomic.Int64
}

func (e *endless) Reserve(_ context.Context, _ string, n, _ int64) (allocator.Grant, error) {
	n = max(n, e.step)
	last := e.next.Add(n)
	return allocator.Grant{Range: allocator.Range{First: last - n + 1, Last: last}, Step: e.step}, nil
}

// once takes n IDs into dst, and waits if it must.
func once(tb testing.TB, a *allocator.Allocator, dst []allocator.Range, n int64) []allocator.Range {
	ranges, w, err := a.Request(dst, "order", n)
	if w != nil {
		ranges, err = w.Wait(context.Background())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return ranges
}

// TestTakeAllocatesNothing: one ID from memory costs no allocation.
func TestTakeAllocatesNothing(t *testing.T) {
	a := allocator.New(allocator.Config{Store: &endless{step: 1 << 40}})
	dst := make([]allocator.Range, 0, 1)
	once(t, a, dst, 1)
	if got := testing.AllocsPerRun(1000, func() { once(t, a, dst, 1) }); got != 0 {
		t.Errorf("%v allocations for one ID", got)
	}
	if got := testing.AllocsPerRun(1000, func() {
		if ranges, err := a.Take(t.Context(), "order", 1); err != nil || len(ranges) != 1 {
			t.Error(len(ranges), err)
		}
	}); got != 0 {
		t.Errorf("%v allocations for one ID from Take", got)
	}
	if got := testing.AllocsPerRun(1000, func() { once(t, a, dst, 1000) }); got != 0 {
		t.Errorf("%v allocations for a thousand IDs", got)
	}
}

// split runs f b.N times, shared by so many goroutines.
func split(b *testing.B, goroutines int, f func()) {
	b.ReportAllocs()
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range goroutines {
		n := b.N / goroutines
		if i < b.N%goroutines {
			n++
		}
		wg.Go(func() {
			for range n {
				f()
			}
		})
	}
	wg.Wait()
}

// BenchmarkAtomicAdd is what [BenchmarkTake] is to be measured against: the
// least that several goroutines can do to get different numbers.
func BenchmarkAtomicAdd(b *testing.B) {
	for _, goroutines := range []int{1, 2} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			var n atomic.Int64
			split(b, goroutines, func() { n.Add(1) })
		})
	}
}

func BenchmarkTake(b *testing.B) {
	for _, n := range []int64{1, 1000} {
		for _, goroutines := range []int{1, 2} {
			b.Run(fmt.Sprintf("n=%d/goroutines=%d", n, goroutines), func(b *testing.B) {
				a := allocator.New(allocator.Config{Store: &endless{step: 50_000_000}})
				once(b, a, nil, 1)
				pool := sync.Pool{New: func() any { return new([1]allocator.Range) }}
				split(b, goroutines, func() {
					dst := pool.Get().(*[1]allocator.Range)
					once(b, a, dst[:0], n)
					pool.Put(dst)
				})
				b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "IDs/s")
			})
		}
	}
}

// filled returns an allocator with these tags in memory, of each of which 100 IDs were taken.
func filled(b *testing.B, tags []string) *allocator.Allocator {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a := allocator.New(allocator.Config{Store: unwatched{&endless{step: 1000}}})
	for _, tag := range tags {
		if _, err := a.Take(ctx, tag, 100); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	a.Run(ctx) // ends when the refills have
	return a
}

// BenchmarkMemory tells what a tag costs that is in use.
func BenchmarkMemory(b *testing.B) {
	tags := many(100_000)
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		a := filled(b, tags)
		b.ReportMetric((heap()-before)/float64(len(tags)), "B/tag")
		runtime.KeepAlive(a)
	}
}

// BenchmarkBusiest is what a generator does each second for its state: once
// with tags that are used more or less, once with all alike.
func BenchmarkBusiest(b *testing.B) {
	tags := many(100_000)
	for _, most := range []int64{800, 1} {
		b.Run(fmt.Sprintf("usage=%d", most), func(b *testing.B) {
			a := filled(b, tags)
			random := rand.New(rand.NewPCG(1, 1))
			for _, tag := range tags {
				if _, err := a.Take(b.Context(), tag, 1+random.Int64N(most)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if got := len(a.Busiest(20)); got != 20 {
					b.Fatal(got)
				}
			}
		})
	}
}

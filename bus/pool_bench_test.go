package bus

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkPool is the time from one ID of a pool to the next of all goroutines together, beside that
// from one addition to the next in a function that is called.
func BenchmarkPool(b *testing.B) {
	p := (&poolSource{}).pool(b)
	p.fetch = func(_ context.Context, n int64) ([]Range, time.Time, error) {
		return []Range{{First: 1, Last: n}}, time.Now(), nil
	}
	b.Cleanup(func() { p.Close() })
	ctx := b.Context()
	var counter atomic.Int64
	for _, goroutines := range []int{1, 2} {
		run := func(name string, work func(n int)) {
			b.Run(fmt.Sprintf("%s/goroutines=%d", name, goroutines), func(b *testing.B) {
				b.ReportAllocs()
				var all sync.WaitGroup
				for i := range goroutines {
					all.Go(func() { work((b.N + i) / goroutines) })
				}
				all.Wait()
			})
		}
		run("add", func(n int) {
			for range n {
				addOne(&counter)
			}
		})
		run("Next", func(n int) {
			for range n {
				if _, err := p.Next(ctx); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
}

//go:noinline
func addOne(counter *atomic.Int64) int64 { return counter.Add(1) }

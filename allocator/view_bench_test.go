package allocator_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
)

// BenchmarkRequestBesideViews shows how long requests from memory take while another goroutine looks at all of 500,000
// tags without a pause: none may wait for that. Where the processors are busy, they also wait for these: compare it
// with the same where the other goroutine only computes, and see how long requests waited for locks.
func BenchmarkRequestBesideViews(b *testing.B) {
	const tags = 500_000
	names := make([]string, tags)
	records := allocatortest.NewMemoryRecords()
	a := allocator.New(allocator.Config{Records: records, Log: testkit.Quiet})
	var loading sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range names {
		names[i] = fmt.Sprint("tag", i)
		slots <- struct{}{}
		loading.Go(func() {
			defer func() { <-slots }()
			if _, err := records.Swap(b.Context(), allocator.Tag{Name: names[i], MaxID: 1, Step: 1 << 30}, 0); err != nil {
				b.Error(err)
			}
			if _, err := a.Take(b.Context(), names[i], 1); err != nil {
				b.Error(err)
			}
		})
	}
	loading.Wait()
	sum := 0
	for name, look := range map[string]func(){
		"computing": func() {
			for i := range 1_000_000 {
				sum += i
			}
		},
		"views":   func() { a.Views(allocator.Query{Limit: 100}) },
		"totals":  func() { a.Totals(10) },
		"busiest": func() { a.Busiest(20) },
	} {
		b.Run(name, func(b *testing.B) {
			stop := make(chan struct{})
			var looking sync.WaitGroup
			looking.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						look()
					}
				}
			})
			took := make([]time.Duration, 0, b.N)
			var room [1]allocator.Range
			runtime.GC()
			waited := locksWaited()
			for b.Loop() {
				tag := names[rand.N(tags)]
				begin := time.Now()
				_, w, err := a.Request(room[:0], tag, 1)
				took = append(took, time.Since(begin))
				if err != nil || w != nil {
					b.Fatalf("%s is not served from memory: %v", tag, err)
				}
			}
			b.ReportMetric(float64((locksWaited()-waited).Nanoseconds())/float64(b.N), "ns-for-locks/op")
			close(stop)
			looking.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)-1].Microseconds()), "µs-longest")
			b.ReportMetric(float64(took[len(took)*9999/10000].Microseconds()), "µs-p99.99")
		})
	}
}

// locksWaited is how long all goroutines have waited for locks.
func locksWaited() time.Duration {
	sample := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(sample)
	return time.Duration(sample[0].Value.Float64() * float64(time.Second))
}

package snowflake_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

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

// BenchmarkTake has the real clock and disk. One worker's IDs have a ceiling,
// 4,096,000 a second: with the default layout this tells how near to it the
// generator comes. The other layout has no ceiling that can be reached, and tells what
// a request costs.
func BenchmarkTake(b *testing.B) {
	for name, layout := range map[string]snowflake.Layout{
		"default": snowflake.DefaultLayout(),
		"wide":    {Epoch: snowflake.DefaultEpoch, TimeBits: 41, WorkerBits: 1, SequenceBits: 21},
	} {
		for _, n := range []int64{1, 1000} {
			for _, goroutines := range []int{1, 2} {
				b.Run(fmt.Sprintf("layout=%s/n=%d/goroutines=%d", name, n, goroutines), func(b *testing.B) {
					g := running(b, layout)
					split(b, goroutines, func() {
						if _, err := g.Take(context.Background(), n); err != nil {
							b.Error(err)
						}
					})
					perSecond := float64(b.N) * float64(n) / b.Elapsed().Seconds()
					b.ReportMetric(perSecond, "IDs/s")
					b.ReportMetric(100*perSecond/float64(1000*layout.PerUnit()), "%ceiling")
				})
			}
		}
	}
}

// running returns a generator that has a worker.
func running(b *testing.B, layout snowflake.Layout) *snowflake.Generator {
	file, err := snowflake.OpenFile(filepath.Join(b.TempDir(), "worker"))
	if err != nil {
		b.Fatal(err)
	}
	g := snowflake.New(snowflake.Config{
		Layout: layout, Registry: snowflaketest.NewMemory(), File: file, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); g.Run(ctx, "prod") }()
	b.Cleanup(func() {
		cancel()
		<-done
		if err := file.Close(); err != nil {
			b.Error(err)
		}
	})
	if _, err := g.Take(ctx, 1); err != nil {
		b.Fatal(err)
	}
	return g
}

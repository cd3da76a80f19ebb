package snowflake_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// BenchmarkTake has the real clock and disk. One worker's IDs have a ceiling, 4,096,000 a second: with the default layout
// it says how near to it the generator comes. The other layout has no ceiling that can be reached, and says what a request
// costs.
func BenchmarkTake(b *testing.B) {
	for name, layout := range map[string]snowflake.Layout{
		"default": snowflake.DefaultLayout(),
		"wide":    {Epoch: snowflake.DefaultEpoch, TimeBits: 41, WorkerBits: 1, SequenceBits: 21},
	} {
		for _, n := range []int64{1, 1000} {
			b.Run(fmt.Sprintf("layout=%s/n=%d", name, n), func(b *testing.B) {
				g := running(b, layout)
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := g.Take(context.Background(), n); err != nil {
							b.Error(err)
						}
					}
				})
				perSecond := float64(b.N) * float64(n) / b.Elapsed().Seconds()
				b.ReportMetric(perSecond, "IDs/s")
				b.ReportMetric(100*perSecond/float64(1000*layout.PerUnit()), "%ceiling")
			})
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

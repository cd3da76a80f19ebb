package tests

import (
	"context"
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// Every way to take IDs, while one of two generators is killed and comes back
// again and again: none comes twice, none was not reserved, callers that give up
// take nothing with them, and nothing is left running. It runs by itself, because
// goroutines of other tests would hide ours.
func TestClientWhileGeneratorsComeAndGo(t *testing.T) {
	seed := allocatortest.Seed(t)
	stays := embed(t, "--tag", "order:1000", "--node", "stays")
	goes := serve(t, t.TempDir(), "-s", stays.url, "--node", "goes")
	states(t, client(t, stays.url), 2)
	before := goleak.IgnoreCurrent()

	nc := connect(t, stays.url)
	// Longer than an attempt whose answer died with its generator.
	c := bus.NewClient(nc, bus.Timeout(patience))
	pool, err := c.Pool("order", bus.Ahead(10, 2000))
	if err != nil {
		t.Fatal(err)
	}
	flakes, err := c.SnowflakePool(bus.Ahead(10, 2000))
	if err != nil {
		t.Fatal(err)
	}
	var tag, snowflakes allocatortest.Checker
	var taken, gaveUp atomic.Int64
	one := func(id int64, err error) ([]bus.Range, error) {
		if err != nil {
			return nil, err
		}
		return []bus.Range{{First: id, Last: id}}, nil
	}
	bulk := func(seq iter.Seq2[bus.Range, error]) (all []bus.Range, err error) {
		for r, err := range seq {
			if err != nil {
				return all, err // what came before it counts
			}
			all = append(all, r)
		}
		return all, nil
	}
	ways := []struct {
		name    string
		checker *allocatortest.Checker
		callers int
		take    func(ctx context.Context, n int64) ([]bus.Range, error)
	}{
		{"take", &tag, 2, func(ctx context.Context, n int64) ([]bus.Range, error) { return c.Take(ctx, "order", n) }},
		{"next", &tag, 16, func(ctx context.Context, _ int64) ([]bus.Range, error) { return one(c.Next(ctx, "order")) }},
		{"pool", &tag, 8, func(ctx context.Context, _ int64) ([]bus.Range, error) { return one(pool.Next(ctx)) }},
		{"bulk", &tag, 1, func(ctx context.Context, n int64) ([]bus.Range, error) {
			return bulk(c.Ranges(ctx, "order", n, bus.Batch(n/7+1)))
		}},
		{"snowflakes", &snowflakes, 2, c.Snowflakes},
		{"next snowflake", &snowflakes, 16, func(ctx context.Context, _ int64) ([]bus.Range, error) { return one(c.NextSnowflake(ctx)) }},
		{"snowflake pool", &snowflakes, 8, func(ctx context.Context, _ int64) ([]bus.Range, error) { return one(flakes.Next(ctx)) }},
		{"snowflake bulk", &snowflakes, 1, func(ctx context.Context, n int64) ([]bus.Range, error) {
			return bulk(c.SnowflakeRanges(ctx, n, bus.Batch(n/7+1)))
		}},
	}
	over := make(chan struct{})
	var callers sync.WaitGroup
	for _, way := range ways {
		for range way.callers {
			random := rand.New(rand.NewPCG(seed.Uint64(), seed.Uint64()))
			callers.Go(func() {
				for calls := 0; ; calls++ {
					select {
					case <-over:
						return
					default:
					}
					ctx, cancel := context.WithCancel(t.Context())
					hasty := random.IntN(4) == 0
					if hasty {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(2000))*time.Microsecond)
					}
					ids, err := way.take(ctx, 1+random.Int64N(500))
					cancel()
					way.checker.Add(ids...)
					for _, r := range ids {
						taken.Add(r.Len())
					}
					switch {
					case err == nil:
					case hasty && errors.Is(err, context.DeadlineExceeded):
						gaveUp.Add(1)
					default:
						t.Errorf("%s: %v", way.name, err)
						return
					}
					if calls%100 == 99 { // so that pools, which are so much faster, do not drown the others
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
	}
	for range 4 {
		until := taken.Load() + 20_000
		testkit.Eventually(t, "callers to get IDs", func() bool { return taken.Load() > until })
		goes.kill()
		until = taken.Load() + 5_000
		testkit.Eventually(t, "callers to get IDs from the other generator", func() bool { return taken.Load() > until })
		goes = goes.again(t)
	}
	close(over)
	callers.Wait()
	tag.Add(pool.Close()...) // what is left over was not handed out
	snowflakes.Add(flakes.Close()...)
	record, err := c.Tag(t.Context(), "order")
	if err != nil {
		t.Fatal(err)
	}
	tag.Add(bus.Range{First: int64(record.MaxID), Last: math.MaxInt64}) // what was not reserved
	nc.Close()

	for name, checker := range map[string]*allocatortest.Checker{"order": &tag, "snowflakes": &snowflakes} {
		if _, err := checker.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d IDs; %d calls gave up", taken.Load(), gaveUp.Load())
	if gaveUp.Load() == 0 {
		t.Error("no call gave up")
	}
	goes.stop() // what watches the process is ours, too
	goleak.VerifyNone(t, before)
}

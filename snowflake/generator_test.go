package snowflake_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestCeiling: under load, whatever the size of the requests, all IDs of each unit of time come, and never more.
func TestCeiling(t *testing.T) {
	for name, c := range map[string]struct {
		unit    time.Duration
		callers int // each has one request under way
		sizes   []int64
	}{
		"single":            {ms, 4500, []int64{1}},
		"small":             {ms, 300, []int64{64, 7}},
		"large":             {ms, 20, []int64{65, 1000}},
		"one large request": {ms, 1, []int64{1_000_000}},
		"mixed":             {ms, 100, []int64{1, 64, 65, 1000, 50_000}},
		"10 ms, single":     {10 * ms, 4500, []int64{1}},
		"100 ms, mixed":     {100 * ms, 100, []int64{1, 64, 65, 1000}},
		"1 s, large":        {time.Second, 8, []int64{1000}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.layout = coarse(c.unit)
				w.layout.SequenceBits = 12
				n := w.start()
				time.Sleep(2 * time.Second)
				const units = 10
				ctx, cancel := context.WithTimeout(t.Context(), units*c.unit)
				defer cancel()
				ids := make(map[int64]int64) // of each unit
				var mu sync.Mutex
				var wg sync.WaitGroup
				for i := range c.callers {
					count := c.sizes[i%len(c.sizes)]
					wg.Go(func() {
						for ctx.Err() == nil {
							ranges, err := n.Take(t.Context(), count)
							if err != nil {
								t.Errorf("Take(%d): %v", count, err)
								return
							}
							w.ids.Add(ranges...)
							mu.Lock()
							for _, r := range ranges {
								ids[(w.parts(r.First).UnixMS-origin-2000)/c.unit.Milliseconds()] += r.Len()
							}
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				for i := range int64(units) {
					least := int64(4096)
					if i == 0 {
						least -= 128 // the first begins at random
					}
					if got := ids[i]; got < least || got > 4096 {
						t.Errorf("%d IDs of unit %d, want all 4096", got, i)
					}
				}
			})
		})
	}
}

// batch asks for IDs beside the test, and returns how long it took when it is
// done.
func (n *node) batch(count int64) (done <-chan time.Duration) {
	took := make(chan time.Duration, 1)
	begin := time.Now()
	go func() {
		ranges, err := n.Take(context.Background(), count)
		if err != nil {
			n.w.t.Errorf("Take(%d): %v", count, err)
		}
		n.w.ids.Add(ranges...)
		took <- time.Since(begin)
	}()
	synctest.Wait()
	return took
}

// TestFairness: a request for few IDs does not wait for one that asks for many. They take turns.
func TestFairness(t *testing.T) {
	for name, c := range map[string]struct {
		tick         time.Duration // of the clock
		before, more int64         // how many batches of how many IDs are under way
		requests     int64         // at once
		count        int64         // each
		least, most  time.Duration
	}{
		"1 after a million":              {ms, 1, 1_000_000, 1, 1, 0, 2 * ms},
		"65 after a million":             {ms, 1, 1_000_000, 1, 65, 0, 2 * ms},
		"1,000 after a million":          {ms, 1, 1_000_000, 1, 1000, 0, 3 * ms},
		"it waits for its turn":          {ms, 80, 10_000, 1, 64, 8 * ms, 20 * ms},
		"as many again as are under way": {ms, 1, 400_000, 1, 400_000, 190 * ms, 200 * ms},
		"64 each":                        {ms, 1, 1_000_000, 32, 64, 0, 3 * ms},
		"64 each, of a slow clock":       {8 * ms, 1, 1_000_000, 256, 64, 0, 24 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start(func(s *setup) { s.Clock = w.clock.every(c.tick) })
				time.Sleep(time.Second)
				var before, requests []<-chan time.Duration
				for range c.before {
					before = append(before, n.batch(c.more))
				}
				for range c.requests {
					requests = append(requests, n.batch(c.count))
				}
				for _, r := range requests {
					if took := <-r; took < c.least || took > c.most {
						t.Fatalf("it took %v, want %v to %v", took, c.least, c.most)
					}
				}
				if len(before[0]) > 0 && c.count <= 64 {
					t.Error("the batch was first")
				}
				for _, b := range before {
					<-b
				}
			})
		})
	}
}

// TestTakeAllocatesNothing: IDs that need not be waited for cost no allocation.
func TestTakeAllocatesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		time.Sleep(ms) // all of the test is in one millisecond
		if got := testing.AllocsPerRun(1000, func() {
			if ranges, err := n.Take(context.Background(), 1); err != nil || len(ranges) != 1 {
				t.Error(len(ranges), err)
			}
		}); got != 0 {
			t.Errorf("%v allocations for Take(1)", got)
		}
	})
}

package allocatortest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestLossy claims through records and numbers that fail in each way. The claims of records have no gap but those of
// uncertain swaps, and each way to fail occurs.
func TestLossy(t *testing.T) {
	random := Seed(t)
	seed := random.Uint64()
	synctest.Test(t, func(t *testing.T) {
		loss := Loss{Refused: 0.1, Dropped: 0.1, Answer: 0.1, Late: 0.1, Lateness: time.Second,
			Delay: 20 * time.Millisecond}
		m, n := NewMemoryRecords(), NewMemoryNumbers()
		add(t, n, "order", 1, 10)
		var ids, numbers Checker
		var mu sync.Mutex
		uncertain, certainly := 0, 0
		var wg sync.WaitGroup
		for i := range 3 {
			random := func() *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(i))) }
			r, n := NewLossyRecords(m.Open(), loss, random()), NewLossyNumbers(n, loss, random())
			ctx := within(t)
			wg.Go(func() {
				for range 100 {
					if s, err := r.Load(ctx, "order"); err == nil {
						_, claimed, err := claim(ctx, r, s, 10)
						mu.Lock()
						if err == nil {
							ids.Add(claimed)
						} else if errors.Is(err, allocator.ErrUncertain) {
							uncertain++
						} else {
							certainly++
						}
						mu.Unlock()
					}
					if r, _, err := n.Advance(ctx, "order", 1, 1, 1); err == nil {
						numbers.Add(r)
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(2 * loss.Lateness)
		wantUnique(t, &numbers)
		claimed, err := ids.Check()
		gaps := m.Snapshot()["order"].MaxID - 1 - claimed
		if err != nil || gaps < 10 || gaps > int64(uncertain)*10 || certainly == 0 {
			t.Errorf("%d IDs were claimed, and %d are gaps, %v; %d swaps were uncertain, %d surely not done", claimed,
				gaps, err, uncertain, certainly)
		}
	})
}

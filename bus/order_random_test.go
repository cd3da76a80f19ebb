package bus

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
)

// strictGenerators answers all requests as generators of a strict tag would: each gets one run of a
// counter at some moment between request and answer. Some answers are lost, and some requests refused.
func (u underTest) strictGenerators(random *rand.Rand) (stop func()) {
	var last atomic.Int64
	var all sync.WaitGroup
	ended := make(chan struct{})
	all.Go(func() {
		for {
			var msg *nats.Msg
			select {
			case msg = <-u.requests:
			case <-ended:
				return
			}
			n, err := strconv.ParseInt(string(msg.Data), 10, 64)
			if err != nil || n < 1 {
				u.t.Errorf("a request of %s", msg.Data)
			}
			chance, gap := random.IntN(20), random.Int64N(3)
			before, after := time.Duration(random.IntN(1000))*time.Microsecond, time.Duration(random.IntN(2000))*time.Microsecond
			all.Go(func() {
				time.Sleep(before)
				switch {
				case chance == 0:
					refuse(u.t, msg, 503, Draining)
					return
				case n > 20:
					refuse(u.t, msg, 413, BatchTooLarge)
					return
				}
				run := Range{Last: last.Add(n + gap)}
				run.First = run.Last - n + 1
				switch chance {
				case 1: // the answer is lost
					return
				case 2: // it comes after the retry
					after += 50 * time.Millisecond
				}
				time.Sleep(after)
				respondStrict(u.t, msg, run.String())
			})
		}
	})
	return func() { close(ended); all.Wait() }
}

// The IDs of a strict tag are in order over several clients, whatever the callers do.
func TestOrderAtRandom(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	u := newUnderTest(t)
	var clients [3]*Client
	for i := range clients {
		clients[i] = NewClient(u.nc, Timeout(testkit.Patience))
	}
	stop := u.strictGenerators(rand.New(rand.NewPCG(random.Uint64(), 0)))
	var h allocatortest.History
	var callers sync.WaitGroup
	for range 24 {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		callers.Go(func() {
			for range 40 {
				c := clients[random.IntN(len(clients))]
				ctx, cancel := context.WithCancel(t.Context())
				leaves := false
				began := time.Now()
				var err error
				switch chance := random.IntN(20); {
				case chance == 0:
					n := 1 + random.Int64N(60)
					var r Range
					for r, err = range c.Ranges(ctx, "invoice", n, Batch(1+random.Int64N(30)), Parallel(1+random.IntN(4))) {
						if err == nil {
							h.Add(began, time.Now(), r)
							began = time.Now()
						}
					}
				case chance < 4:
					var ranges []Range
					if ranges, err = c.Take(ctx, "invoice", 1+random.Int64N(20)); err == nil {
						h.Add(began, time.Now(), ranges...)
					}
				default:
					if leaves = chance < 12; leaves {
						time.AfterFunc(time.Duration(random.IntN(6000))*time.Microsecond, cancel)
					}
					var id int64
					if id, err = c.Next(ctx, "invoice"); err == nil {
						h.Add(began, time.Now(), Range{First: id, Last: id})
					}
				}
				cancel()
				if err != nil && !leaves {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	stop()
	if n, err := h.Check(); err != nil || n == 0 {
		t.Errorf("%d requests: %v", n, err)
	}
}

package bus

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
)

// generators answers all requests, as a random one of many generators would, until the returned
// function is called, which tells what was given of each subject.
func (u underTest) generators(random *rand.Rand) (stop func() map[string][]Range) {
	given, last := make(map[string][]Range), make(map[string]int64)
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
			delay := time.Duration(random.IntN(2000)) * time.Microsecond
			reply := func(f func()) { all.Go(func() { time.Sleep(delay); f() }) }
			switch chance := random.IntN(20); {
			case msg.Subject == "leaf.segment.none":
				reply(func() { refuse(u.t, msg, 404, UnknownTag) })
			case chance == 0:
				reply(func() { refuse(u.t, msg, 503, Draining) })
			case chance == 1:
				reply(func() { refuse(u.t, msg, 429, Overloaded) })
			case n > 20:
				reply(func() { refuse(u.t, msg, 413, BatchTooLarge) })
			default:
				var ranges []Range
				for n > 0 {
					k := 1 + random.Int64N(n)
					first := last[msg.Subject] + 1 + random.Int64N(3)
					last[msg.Subject] = first + k - 1
					ranges = append(ranges, Range{First: first, Last: first + k - 1})
					n -= k
				}
				given[msg.Subject] = append(given[msg.Subject], ranges...)
				reply(func() { respond(u.t, msg, string(AppendReply(nil, ranges, false))) })
			}
		}
	})
	return func() map[string][]Range { close(ended); all.Wait(); return given }
}

// oneWay checks that each ID came once, and from a generator.
func oneWay(t *testing.T, what string, ids []int64, given []Range) {
	t.Helper()
	slices.Sort(ids)
	for i, id := range ids {
		if i > 0 && ids[i-1] == id {
			t.Errorf("%s: %d came twice", what, id)
		}
		for len(given) > 0 && given[0].Last < id {
			given = given[1:]
		}
		if len(given) == 0 || id < given[0].First {
			t.Errorf("%s: %d was not given", what, id)
		}
	}
}

// Callers of all kinds, with contexts that end at any time.
func TestNextAtRandom(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	u := newUnderTest(t, Timeout(testkit.Patience))
	stop := u.generators(rand.New(rand.NewPCG(random.Uint64(), 0)))
	subjects := []string{"leaf.segment.a", "leaf.segment.b", "leaf.snowflake", "leaf.segment.none"}
	var mu sync.Mutex
	got := make(map[string][]int64)
	var callers sync.WaitGroup
	for range 48 {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		callers.Go(func() {
			for range 50 {
				subject := subjects[min(random.IntN(13)/4, 3)]
				ctx, cancel := context.WithCancel(t.Context())
				var may error
				switch random.IntN(5) {
				case 0:
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(random.IntN(3000))*time.Microsecond)
					may = context.DeadlineExceeded
				case 1:
					time.AfterFunc(time.Duration(random.IntN(3000))*time.Microsecond, cancel)
					may = context.Canceled
				case 2:
					if random.IntN(4) == 0 {
						cancel()
						may = context.Canceled
					}
				}
				var id int64
				var err error
				if subject == "leaf.snowflake" {
					id, err = u.NextSnowflake(ctx)
				} else {
					id, err = u.Next(ctx, subject[len("leaf.segment."):])
				}
				cancel()
				switch {
				case err == nil && subject != "leaf.segment.none":
					mu.Lock()
					got[subject] = append(got[subject], id)
					mu.Unlock()
				case err != nil && may != nil && errors.Is(err, may) && id == 0:
				case subject == "leaf.segment.none" && errors.Is(err, UnknownTag) && id == 0:
				default:
					t.Errorf("%s: %d, %v; its context may end with %v", subject, id, err, may)
				}
			}
		})
	}
	callers.Wait()
	u.left()
	given := stop()
	for subject, ids := range got {
		oneWay(t, subject, ids, given[subject])
	}
}

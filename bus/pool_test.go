package bus

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

// poolWorld is a pool, and a generator of its tag.
type poolWorld struct {
	*Pool

	lock  sync.Mutex
	given []Range
	asked []int64 // how many IDs, by each request
}

// newPoolWorld returns a pool. answer returns the IDs of an answer, and after how long it comes; nil: it is refused as
// exhausted.
func newPoolWorld(tb testing.TB, answer func(n int64) ([]Range, time.Duration), opts ...PoolOption) *poolWorld {
	tb.Helper()
	w := &poolWorld{}
	c := newClient(nil)
	c.x.lines = []transport{&fakeLine{x: c.x, answer: func(_, n int64) (*nats.Msg, time.Duration) {
		w.lock.Lock()
		defer w.lock.Unlock()
		ranges, after := answer(n)
		w.asked, w.given = append(w.asked, n), append(w.given, ranges...)
		if ranges == nil {
			return &nats.Msg{Header: nats.Header{wire.HeaderErrorCode: {"507"}},
				Data: wire.Encode(&Error{Code: 507, Reason: Exhausted, Message: "no"})}, after
		}
		return &nats.Msg{Data: wire.AppendReply(nil, ranges, false)}, after
	}}}
	var err error
	if w.Pool, err = c.Pool("order", opts...); err != nil {
		tb.Fatal(err)
	}
	return w
}

// inOrder returns a generator that answers at once.
func inOrder() func(int64) ([]Range, time.Duration) {
	last := int64(0)
	return func(n int64) ([]Range, time.Duration) {
		last += n
		return []Range{{First: last - n + 1, Last: last}}, 0
	}
}

// The largest ID is one.
func TestPoolLargestID(t *testing.T) {
	t.Parallel()
	for used := range int64(6) {
		fetched := false
		p := newPoolWorld(t, func(n int64) ([]Range, time.Duration) {
			if fetched {
				return nil, 0
			}
			fetched = true
			return []Range{{First: math.MaxInt64 - n + 1, Last: math.MaxInt64}}, 0
		}, Ahead(5, 5))
		for i := range used {
			if id, err := p.Next(t.Context()); err != nil || id != math.MaxInt64-4+i {
				t.Fatalf("%d, %v", id, err)
			}
		}
		if used == 5 {
			if id, err := p.Next(t.Context()); !errors.Is(err, Exhausted) {
				t.Errorf("after the last ID: %d, %v", id, err)
			}
		}
		var want []Range
		if used > 0 && used < 5 {
			want = []Range{{First: math.MaxInt64 - 4 + used, Last: math.MaxInt64}}
		}
		if unused := p.Close(); !slices.Equal(unused, want) {
			t.Errorf("after %d of 5 Close returned %v, want %v", used, unused, want)
		}
	}
}

// A generator is slow, is silent, and divides its answers. Callers of all kinds come and leave, in virtual time, and the
// pool is closed among them. Each ID goes one way, a caller with time gets one, and one without knows why not. The pool
// keeps as many as it may.
func TestPoolOfASlowGenerator(t *testing.T) {
	random := allocatortest.Seed(t)
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			last, silent, began := int64(0), time.Duration(random.IntN(5))*time.Second, time.Now()
			closes := time.Duration(random.IntN(20)) * time.Second
			p := newPoolWorld(t, func(n int64) (ranges []Range, _ time.Duration) {
				for parts := random.Int64N(4) + 1; n > 0; parts-- {
					size := max(n/parts, 1)
					last += size + 5
					ranges, n = append(ranges, Range{First: last - size + 1, Last: last}), n-size
				}
				took := time.Duration(random.Int64N(int64(50 * time.Millisecond)))
				if since := time.Since(began); since > time.Second && since < time.Second+silent {
					took += silent
				}
				return ranges, took
			}, Ahead(1+random.Int64N(20), 20+random.Int64N(200)))
			var ids []int64
			var mu sync.Mutex
			var all sync.WaitGroup
			for i := range 50 {
				patience := []time.Duration{0, 20 * time.Millisecond, time.Second, 20 * time.Second}[i%4]
				pause := time.Duration(4*i) * time.Millisecond
				all.Go(func() {
					for range 50 {
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						at := time.Now()
						id, err := p.Next(ctx)
						cancel()
						if errors.Is(err, ErrPoolClosed) && time.Since(began) >= closes {
							return
						}
						if took := time.Since(at); took > patience || err != nil &&
							(patience > 10*time.Second || !errors.Is(err, context.DeadlineExceeded)) {
							t.Errorf("a caller with %v has after %v: %v", patience, took, err)
						}
						if mu.Lock(); err == nil {
							ids = append(ids, id)
						}
						mu.Unlock()
						p.mu.Lock()
						if p.left > p.most || p.left != idspace.Total(p.ids) || p.distance < p.least || p.distance > p.most {
							t.Errorf("%d IDs of %v, %d are to be kept", p.left, p.ids, p.distance)
						}
						p.mu.Unlock()
						time.Sleep(pause)
					}
				})
			}
			time.Sleep(closes)
			unused := p.Close()
			all.Wait()
			for _, r := range unused {
				for id := r.First; id <= r.Last; id++ { // it ends even if the pool changes what it returned
					ids = append(ids, id)
				}
			}
			if id, err := p.Next(t.Context()); !errors.Is(err, ErrPoolClosed) {
				t.Errorf("after Close: %d, %v", id, err)
			}
			time.Sleep(time.Minute) // what was late has come
			slices.SortFunc(p.given, func(x, y Range) int { return int(x.First - y.First) })
			oneWay(t, "the pool", ids, p.given)
		})
	}
}

// How many IDs a pool keeps follows the demand. It fetches when half of them are used. After a fetch has failed, it
// tries again when half of the rest is used.
func TestPoolFollowsTheDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		ids := inOrder()
		p := newPoolWorld(t, func(n int64) ([]Range, time.Duration) {
			if fails.Load() {
				return nil, time.Millisecond
			}
			ranges, _ := ids(n)
			return ranges, time.Millisecond
		}, Ahead(8, 16))
		asks := func(what string, uses int, want ...int64) {
			t.Helper()
			p.lock.Lock()
			before := len(p.asked)
			p.lock.Unlock()
			for range uses {
				if _, err := p.Next(t.Context()); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(5 * time.Millisecond)
			p.lock.Lock()
			defer p.lock.Unlock()
			if got := p.asked[before:]; !slices.Equal(got, want) {
				t.Errorf("%s: it asked for %d, want %d", what, got, want)
			}
		}
		asks("at first", 1, 8)
		asks("more than half are left", 2)
		asks("half are used", 1, 4)
		asks("callers had to wait", 9, 4, 12)
		time.Sleep(idle)
		asks("half of them lasted long", 7, 8)
		fails.Store(true)
		asks("it fails", 12, 4)
		asks("one is left of the rest", 1)
		asks("half of the rest is used", 1, 6)
	})
}

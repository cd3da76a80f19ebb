package bus

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestPoolModel is about what a pool does when. These are what it leaves out: the largest IDs, all processors at once,
// and allocations.

// newPoolUnderTest returns a pool that fetches from a function.
func newPoolUnderTest(tb testing.TB, fetch func(context.Context, int64, time.Time) ([]Range, error), opts ...PoolOption) *Pool {
	tb.Helper()
	p, err := newPool(NewClient(nil).snowflakes(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	p.fetch = fetch
	return p
}

// The largest ID is one.
func TestPoolLargestID(t *testing.T) {
	t.Parallel()
	for used := range int64(6) {
		exhausted := &Error{Code: 507, Reason: Exhausted}
		fetched := false
		p := newPoolUnderTest(t, func(_ context.Context, n int64, _ time.Time) ([]Range, error) {
			if fetched {
				return nil, exhausted
			}
			fetched = true
			return []Range{{First: math.MaxInt64 - n + 1, Last: math.MaxInt64}}, nil
		}, Ahead(5, 5))
		for i := range used {
			if id, err := p.Next(t.Context()); err != nil || id != math.MaxInt64-4+i {
				t.Fatalf("%d, %v", id, err)
			}
		}
		if used == 5 {
			if id, err := p.Next(t.Context()); err != exhausted {
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

// Callers on all processors, and Close among them: each ID goes one way.
func TestPoolStress(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		each int
		opts []PoolOption
	}{
		"few ahead":  {10_000, []PoolOption{Ahead(1, 100)}},
		"many ahead": {200_000, []PoolOption{Ahead(1000, 100_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			var given int64 // one fetch at a time
			p := newPoolUnderTest(t, func(_ context.Context, n int64, _ time.Time) ([]Range, error) {
				given += n
				if n == 1 {
					return []Range{{First: given, Last: given}}, nil
				}
				middle := given - n/2
				return []Range{{First: given - n + 1, Last: middle}, {First: middle + 1, Last: given}}, nil
			}, test.opts...)
			var taken [8][]int64
			var all sync.WaitGroup
			most := make(chan struct{})
			for i := range taken {
				all.Go(func() {
					for k := range test.each {
						if i == 0 && k == test.each*9/10 {
							close(most)
						}
						id, err := p.Next(context.Background())
						if err != nil {
							if !errors.Is(err, ErrPoolClosed) {
								t.Error(err)
							}
							break
						}
						taken[i] = append(taken[i], id)
					}
				})
			}
			<-most
			unused := p.Close()
			all.Wait()
			ids := slices.Concat(taken[:]...)
			for _, r := range unused {
				ids = slices.AppendSeq(ids, r.All())
			}
			oneWay(t, "the pool", ids, []Range{{First: 1, Last: given}})
			if int64(len(ids)) != given {
				t.Errorf("%d IDs were fetched, and %d handed out or returned", given, len(ids))
			}
		})
	}
}

func TestPoolAllocatesNothing(t *testing.T) {
	p := newPoolUnderTest(t, func(_ context.Context, n int64, _ time.Time) ([]Range, error) {
		return []Range{{First: 1, Last: n}}, nil
	}, Ahead(100_000, 100_000))
	defer p.Close()
	if n := testing.AllocsPerRun(10_000, func() {
		if _, err := p.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for an ID", n)
	}
}

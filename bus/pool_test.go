package bus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// poolSource is what a pool under test fetches from: IDs from 1, in one range a request.
type poolSource struct {
	mu     sync.Mutex
	delay  time.Duration
	err    error // in place of IDs
	given  int64
	asked  []int64
	holder chan struct{} // not nil: answers wait until it is closed
}

func (s *poolSource) fetch(ctx context.Context, n int64) ([]Range, time.Time, error) {
	asked := time.Now()
	s.mu.Lock()
	s.asked = append(s.asked, n)
	delay, holder := s.delay, s.holder
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, asked, ctx.Err()
	case <-time.After(delay):
	}
	if holder != nil {
		select {
		case <-ctx.Done():
			return nil, asked, ctx.Err()
		case <-holder:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, asked, s.err
	}
	r := Range{First: s.given + 1, Last: s.given + n}
	s.given += n
	return []Range{r}, asked, nil
}

// set changes what a source does from now on.
func (s *poolSource) set(delay time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay, s.err = delay, err
}

// requests returns what was asked for since the last call.
func (s *poolSource) requests() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// hold keeps answers back until release.
func (s *poolSource) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := make(chan struct{})
	s.holder = holder
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holder = nil
		close(holder)
	}
}

func (s *poolSource) pool(t testing.TB, opts ...PoolOption) *Pool {
	t.Helper()
	p, err := newPool(NewClient(nil).snowflakes(), 0, opts)
	if err != nil {
		t.Fatal(err)
	}
	p.fetch = s.fetch
	return p
}

// take takes n IDs, which must be there at once, whatever the context.
func take(t *testing.T, p *Pool, n int64) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range n {
		if _, err := p.Next(ended); err != nil {
			t.Fatal(err)
		}
	}
}

// wait takes n IDs at a time, which may have to be waited for.
func wait(t *testing.T, p *Pool, n int) {
	t.Helper()
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			if _, err := p.Next(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	synctest.Wait()
}

// distanceOf is how many IDs a pool wants to keep.
func distanceOf(p *Pool) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.distance
}

// Half of what it keeps is used, then it fetches as much: twice as much when callers waited, half
// as much when that lasted.
func TestPoolFollowsDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Millisecond}
		p := s.pool(t, Ahead(100, 350))
		defer p.Close()
		want := func(what string, distance int64, asked ...int64) {
			t.Helper()
			synctest.Wait()
			if got := s.requests(); !slices.Equal(got, asked) || distanceOf(p) != distance {
				t.Fatalf("%s: it has asked for %d and keeps %d, want %d and %d", what, got, distanceOf(p), asked, distance)
			}
		}
		settle := func() { time.Sleep(time.Second) }

		settle()
		want("before the first call", 100)
		wait(t, p, 1)
		want("the first call, for which it had no chance", 100, 100)
		take(t, p, 48)
		want("more than half is left", 100)
		take(t, p, 1)
		want("half is left", 100, 50)
		take(t, p, 20)
		settle()
		take(t, p, 29)
		want("more than half is left again", 100)
		take(t, p, 1)
		want("half is left again", 100, 50)
		take(t, p, 50)
		wait(t, p, 1) // it comes too late
		want("a caller waited: it keeps twice as much", 200, 151)
		settle()
		want("which is enough", 200)
		take(t, p, 200)
		wait(t, p, 1)
		want("a caller waited again", 350, 100, 251)
		settle()
		take(t, p, 350)
		wait(t, p, 1)
		want("it keeps no more than it may", 350, 175, 176)
		settle()

		for _, distance := range []int64{175, 100, 100} {
			time.Sleep(idle)
			p.mu.Lock()
			n := p.left() - p.want
			p.mu.Unlock()
			take(t, p, n)
			settle()
			s.requests()
			want(fmt.Sprintf("half of it lasted %v", idle), distance)
		}
		time.Sleep(idle - 2*time.Second)
		take(t, p, 50)
		settle()
		want("half of it did not last so long", 100, 50)
	})
}

// Many callers that find nothing are served by one fetch.
func TestPoolAsksForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Millisecond}
		p := s.pool(t, Ahead(1, 1000))
		defer p.Close()
		release := s.hold()
		var callers sync.WaitGroup
		for range 300 {
			callers.Go(func() {
				if _, err := p.Next(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		release()
		callers.Wait()
		if got := s.requests(); got[0] != 1 || got[1] < 299 || len(got) > 3 {
			t.Errorf("for 300 callers it asked for %d", got)
		}
	})
}

// A pool never has more than it may, also where those it fetched for have gone.
func TestPoolKeepsNoMoreThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := (&poolSource{}).pool(t, Ahead(10, 10))
		defer p.Close()
		release := make(chan struct{})
		var given int64
		p.fetch = func(_ context.Context, n int64) ([]Range, time.Time, error) {
			asked := time.Now()
			<-release
			n = min(n, 3) // as a generator whose batches are small
			given += n
			return []Range{{First: given - n + 1, Last: given}}, asked, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() { p.Next(ctx) })
		}
		synctest.Wait()
		cancel()
		callers.Wait()
		for range 10 {
			release <- struct{}{}
			synctest.Wait()
			p.mu.Lock()
			left, filling := p.left(), p.filling != nil
			p.mu.Unlock()
			if left > 10 {
				t.Fatalf("it keeps %d IDs", left)
			}
			if !filling {
				return
			}
		}
		t.Error("it goes on fetching")
	})
}

// The largest ID is one.
func TestPoolLargestID(t *testing.T) {
	for name, opts := range map[string][]PoolOption{
		"any age": {Ahead(5, 5)},
		"a age":   {Ahead(5, 5), MaxAge(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			for used := range int64(6) {
				p := (&poolSource{}).pool(t, opts...)
				exhausted := &Error{Code: 507, Reason: Exhausted}
				fetched := false
				p.fetch = func(_ context.Context, n int64) ([]Range, time.Time, error) {
					if fetched {
						return nil, time.Now(), exhausted
					}
					fetched = true
					return []Range{{First: math.MaxInt64 - n + 1, Last: math.MaxInt64}}, time.Now(), nil
				}
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
		})
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
		"with age":   {20_000, []PoolOption{Ahead(100, 10_000), MaxAge(time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &poolSource{}
			p := s.pool(t, test.opts...)
			p.fetch = func(_ context.Context, n int64) ([]Range, time.Time, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.given += n
				if n == 1 {
					return []Range{{First: s.given, Last: s.given}}, time.Now(), nil
				}
				middle := s.given - n/2
				return []Range{{First: s.given - n + 1, Last: middle}, {First: middle + 1, Last: s.given}}, time.Now(), nil
			}
			var taken [8][]int64
			var all sync.WaitGroup
			begin, most := make(chan struct{}), make(chan struct{})
			for i := range taken {
				all.Go(func() {
					ids := make([]int64, 0, test.each)
					<-begin
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
						ids = append(ids, id)
					}
					taken[i] = ids
				})
			}
			close(begin)
			<-most
			unused := p.Close()
			all.Wait()
			ids := slices.Concat(taken[:]...)
			for _, r := range unused {
				ids = slices.AppendSeq(ids, r.All())
			}
			seen := make([]bool, s.given+1)
			for _, id := range ids {
				if id < 1 || id > s.given || seen[id] {
					t.Fatalf("%d, which is not one of %d or comes twice", id, s.given)
				}
				seen[id] = true
			}
			if int64(len(ids)) != s.given {
				t.Errorf("%d IDs were fetched, and %d handed out or returned", s.given, len(ids))
			}
		})
	}
}

func TestPoolAllocatesNothing(t *testing.T) {
	for name, opts := range map[string][]PoolOption{
		"any age": {Ahead(100_000, 100_000)},
		"an age":  {Ahead(100_000, 100_000), MaxAge(time.Hour)},
	} {
		p := (&poolSource{}).pool(t, opts...)
		defer p.Close()
		ctx := t.Context()
		if n := testing.AllocsPerRun(10_000, func() {
			if _, err := p.Next(ctx); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for an ID", name, n)
		}
	}
}

func TestPoolOptions(t *testing.T) {
	client := NewClient(nil)
	for _, opts := range [][]PoolOption{
		{Ahead(0, 1)},
		{Ahead(-1, 1)},
		{Ahead(2, 1)},
		{Ahead(1, LimitAhead+1)},
		{MaxAge(-1)},
	} {
		if p, err := client.Pool("order", opts...); !errors.Is(err, BadRequest) || p != nil {
			t.Errorf("%v, %v", p, err)
		}
	}
	if p, err := client.Pool("no tag"); !errors.Is(err, BadTag) || p != nil {
		t.Errorf("%v, %v", p, err)
	}
	p, err := client.Pool("order")
	if err != nil || p.maxAge != 0 {
		t.Fatalf("%v, IDs of a tag may be %v old", err, p.maxAge)
	}
	if unused := p.Close(); unused != nil {
		t.Errorf("of a pool that was not used: %v", unused)
	}
	flakes, err := client.SnowflakePool()
	if err != nil || flakes.maxAge != DefaultMaxAge {
		t.Fatalf("%v, snowflakes may be %v old", err, flakes.maxAge)
	}
	flakes.Close()
}

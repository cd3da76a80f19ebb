package bus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
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

// A long outage costs few attempts while IDs are left, delays nobody before they are used up,
// and when it is over nobody has to do anything.
func TestPoolOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Millisecond}
		p := s.pool(t, Ahead(1000, 1000))
		defer p.Close()
		wait(t, p, 1)
		time.Sleep(time.Second)

		s.set(DefaultTimeout, &Error{Code: 503, Reason: StoreUnavailable})
		s.requests()
		for range 999 {
			take(t, p, 1)
			time.Sleep(time.Minute)
		}
		if n := len(s.requests()); n < 2 || n > 10 {
			t.Errorf("%d attempts in an outage until 1000 IDs were used up", n)
		}

		// Those who wait try all the time, one at a time.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Second)
		defer cancel()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				if id, err := p.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%d, %v", id, err)
				}
			})
		}
		callers.Wait()
		if n := len(s.requests()); n != 12 {
			t.Errorf("%d attempts of %v in a minute", n, DefaultTimeout)
		}

		time.AfterFunc(time.Hour, func() { s.set(time.Millisecond, nil) })
		ctx, cancel = context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		if _, err := p.Next(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		take(t, p, 999)
	})
}

// What an attempt was told that began before a caller came may not be true any more.
func TestPoolErrors(t *testing.T) {
	unknown := &Error{Code: 404, Reason: UnknownTag, Message: "no such tag"}
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Second, err: unknown}
		p := s.pool(t)
		defer p.Close()
		var callers sync.WaitGroup
		began := time.Now()
		callers.Go(func() {
			if _, err := p.Next(t.Context()); err != unknown || time.Since(began) != time.Second {
				t.Errorf("the first caller: %v after %v", err, time.Since(began))
			}
		})
		time.Sleep(time.Second / 2)
		callers.Go(func() {
			if _, err := p.Next(t.Context()); err != unknown || time.Since(began) != 2*time.Second {
				t.Errorf("the second caller: %v after %v", err, time.Since(began))
			}
		})
		time.Sleep(time.Second)
		callers.Go(func() { // the tag is created meanwhile
			if _, err := p.Next(t.Context()); err != nil || time.Since(began) != 3*time.Second {
				t.Errorf("the third caller: %v after %v", err, time.Since(began))
			}
		})
		time.Sleep(time.Second)
		s.set(time.Second, nil)
		callers.Wait()
	})
}

// Who gives up is told why, and that its context has ended.
func TestPoolGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Hour}
		from := NewClient(nil, Timeout(3*time.Second)).snowflakes()
		p, err := newPool(from, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.fetch = s.fetch
		defer p.Close()
		began := time.Now()
		gives := func(what string, ctx context.Context, after time.Duration, want ...error) {
			t.Helper()
			began = time.Now()
			_, err := p.Next(ctx)
			if got := time.Since(began); got != after {
				t.Errorf("%s: after %v, want %v", what, got, after)
			}
			for _, want := range want {
				if !errors.Is(err, want) {
					t.Errorf("%s: %v; want it to match %v", what, err, want)
				}
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		gives("ended before", ended, 0, context.Canceled)
		if n := len(s.requests()); n > 0 {
			t.Errorf("%d requests for a caller that is gone", n)
		}
		gives("the client's timeout", t.Context(), 3*time.Second, context.DeadlineExceeded)
		var why error = &Error{Code: 503, Reason: StoreUnavailable}
		from.why.Store(&why)
		deadline, cancel := context.WithTimeout(t.Context(), 7*time.Second) // longer than attempts take
		defer cancel()
		gives("a deadline", deadline, 7*time.Second, context.DeadlineExceeded, StoreUnavailable)
		later, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		gives("cancelled", later, time.Second, context.Canceled, StoreUnavailable)
	})
}

// What became too old is not handed out.
func TestPoolMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Millisecond}
		p := s.pool(t, Ahead(10, 1000), MaxAge(time.Second))
		defer p.Close()
		wait(t, p, 1)
		time.Sleep(time.Second - time.Millisecond) // since it was asked for
		take(t, p, 1)
		time.Sleep(time.Nanosecond)
		id, err := p.Next(t.Context())
		if err != nil || id <= 10 {
			t.Errorf("%d, %v: of those that were asked for more than a second ago", id, err)
		}
	})
}

// Where callers come so seldom that IDs become too old, it keeps fewer and fewer.
func TestPoolKeepsLessWhereIDsBecomeTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Millisecond}
		p := s.pool(t, Ahead(10, 1000), MaxAge(time.Second))
		defer p.Close()
		wait(t, p, 1)
		for range 10 { // with much to do
			wait(t, p, 500)
			time.Sleep(time.Millisecond)
		}
		before := distanceOf(p)
		if before < 100 {
			t.Fatalf("it keeps %d", before)
		}
		for range 12 {
			time.Sleep(time.Minute)
			s.requests()
			wait(t, p, 1)
			if now := distanceOf(p); now != max(before/2, 10) {
				t.Errorf("a minute later it keeps %d, before %d", now, before)
			}
			before = distanceOf(p)
			if n := len(s.requests()); n != 1 {
				t.Errorf("%d requests for one caller", n)
			}
			take(t, p, 3)
		}
	})
}

// Callers that come together after a pause are served together, and do not make
// it keep more: they wait because time has passed, not because it kept little.
func TestPoolAfterPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Millisecond}
		p := s.pool(t, Ahead(100, 1000), MaxAge(time.Second))
		defer p.Close()
		for range 5 {
			wait(t, p, 1)
			take(t, p, 1)
			time.Sleep(time.Minute) // what it has becomes too old
			s.requests()
			var callers sync.WaitGroup
			for range 40 {
				callers.Go(func() {
					if _, err := p.Next(t.Context()); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait() // one comes after the other
			}
			callers.Wait()
			synctest.Wait()
			if got := s.requests(); !slices.Equal(got, []int64{100}) || distanceOf(p) != 100 {
				t.Errorf("for 40 callers it asked for %d and keeps %d; want 100, once, and 100", got, distanceOf(p))
			}
			time.Sleep(time.Minute)
		}
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

// Those who wait are told that the pool is closed, whatever the request that they waited for says
// when it is given up.
func TestPoolClose(t *testing.T) {
	for name, given := range map[string]error{
		"no answer":        fmt.Errorf("no answer on leaf.segment.order in time: %w", context.Canceled),
		"no generator":     fmt.Errorf("nobody: %w (%w)", nats.ErrNoResponders, context.Canceled),
		"an unknown tag":   &Error{Code: 404, Reason: UnknownTag},
		"IDs, too late":    nil,
		"of the last word": context.Canceled,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := (&poolSource{}).pool(t, Ahead(3, 3))
				p.fetch = func(ctx context.Context, n int64) ([]Range, time.Time, error) {
					<-ctx.Done()
					if given != nil {
						return nil, time.Now(), given
					}
					return []Range{{First: 1, Last: n}}, time.Now(), nil
				}
				var callers sync.WaitGroup
				var handed atomic.Int64
				for range 10 {
					callers.Go(func() {
						switch id, err := p.Next(context.Background()); {
						case err == nil:
							handed.Add(1)
						case !errors.Is(err, ErrPoolClosed):
							t.Errorf("%d, %v", id, err)
						}
					})
				}
				synctest.Wait()
				unused := p.Close()
				callers.Wait()
				if got := handed.Load() + total(unused); given == nil && got != 3 || given != nil && got != 0 {
					t.Errorf("%d handed out, and Close returned %v", handed.Load(), unused)
				}
				if id, err := p.Next(context.Background()); !errors.Is(err, ErrPoolClosed) {
					t.Errorf("after Close: %d, %v", id, err)
				}
				if again := p.Close(); again != nil {
					t.Errorf("Close again: %v", again)
				}
			})
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

// Where answers take longer than IDs may be old, those who wait for them get theirs.
func TestPoolSlowerThanMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: 1200 * time.Millisecond}
		p := s.pool(t, Ahead(100, 1000), MaxAge(time.Second))
		defer p.Close()
		for range 3 {
			began := time.Now()
			if _, err := p.Next(t.Context()); err != nil || time.Since(began) != s.delay {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
	})
}

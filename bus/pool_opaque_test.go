package bus

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// scattered returns an answer with n IDs of an opaque tag: none is next to another one.
func scattered(from, n int64) (ranges []Range) {
	for i := range n {
		id := 1 + (from+i)*7919%1_000_003
		ranges = append(ranges, Range{First: id, Last: id})
	}
	return ranges
}

// A pool of an opaque tag hands out each ID once, beside runs, and returns those that are left. It keeps them in few pieces.
func TestPoolOfScatteredIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given []Range
		p := (&poolSource{}).pool(t, Ahead(500, 500))
		p.fetch = func(_ context.Context, n int64) ([]Range, time.Time, error) {
			asked := time.Now()
			time.Sleep(time.Millisecond)
			some := scattered(total(given), n)
			if n > 20 { // a plain run between, as another version of the tag would have
				at := 2_000_000 + total(given)
				some = slices.Concat(some[:n/2], []Range{{First: at, Last: at + 9}}, some[n/2+10:])
			}
			given = append(given, some...)
			return some, asked, nil
		}
		taken := make(map[int64]int)
		var mu sync.Mutex
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				for range 97 {
					id, err := p.Next(t.Context())
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					taken[id]++
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		synctest.Wait()
		p.mu.Lock()
		if len(p.ahead) > 6 {
			t.Errorf("%d IDs are in %d pieces", p.kept, len(p.ahead))
		}
		p.mu.Unlock()
		left := p.Close()
		if len(taken) != 20*97 || total(left) == 0 {
			t.Errorf("%d IDs were taken, %d are left", len(taken), total(left))
		}
		for _, r := range left {
			for id := range r.All() {
				taken[id]++
			}
		}
		for _, r := range given {
			for id := range r.All() {
				if taken[id] != 1 {
					t.Fatalf("%d came %d times", id, taken[id])
				}
				delete(taken, id)
			}
		}
		if len(taken) > 0 {
			t.Errorf("%d IDs were never given", len(taken))
		}
	})
}

// An ID of an opaque tag that is too old is dropped, as any other.
func TestScatteredIDsOfAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := (&poolSource{}).pool(t, Ahead(10, 10), MaxAge(time.Second))
		batch := int64(0)
		p.fetch = func(_ context.Context, n int64) ([]Range, time.Time, error) {
			batch++
			return scattered(1000*batch, n), time.Now(), nil
		}
		first, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		second, err := p.Next(t.Context())
		if err != nil || slices.ContainsFunc(scattered(1000, 10), func(r Range) bool { return r.First == second }) {
			t.Errorf("%d, then %d, %v", first, second, err)
		}
		p.Close()
	})
}

// Callers of Next that share a request get an ID each. So do those that come later and take what was fetched ahead.
func TestNextOfScatteredIDs(t *testing.T) {
	u := newUnderTest(t)
	const many = 2 * manyCallers
	given := make(map[int64]int)
	answer := func(msg *nats.Msg, n int64) {
		t.Helper()
		var lines []string
		for _, r := range scattered(int64(len(given)), n) {
			given[r.First] = 1
			lines = append(lines, r.String())
		}
		respond(t, msg, strings.Join(lines, "\n"))
	}
	get := func(results <-chan called, n int) {
		t.Helper()
		for _, id := range u.get(results, n) {
			if given[id]--; given[id] != 0 {
				t.Fatalf("%d was never given, or came before", id)
			}
		}
	}
	first := u.next(far(t), "coupon", 1)
	msg := u.request(1)
	waiting := u.next(far(t), "coupon", many)
	u.waiting("coupon", many)
	answer(msg, 1)
	get(first, 1)
	msg = u.request(2 * many) // twice as many, because the tag is not strict
	last := u.next(far(t), "coupon", 1)
	u.waiting("coupon", 1)
	answer(msg, 2*many)
	get(waiting, many)
	msg = u.request(1)
	get(u.next(far(t), "coupon", many), many) // while a request is under way
	answer(msg, 1)
	get(last, 1)
	u.over()
}

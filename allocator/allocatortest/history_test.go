package allocatortest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// begin is a time with a reading of the monotonic clock, as the times of real requests have it.
var begin = time.Now()

func at(ns int64) time.Time { return begin.Add(time.Duration(ns)) }

// request is one answered request of a test's history; its times are nanoseconds after begin.
type request struct{ call, ret, first, last int64 }

func history(requests ...request) *History {
	h := new(History)
	for _, r := range requests {
		h.Add(at(r.call), at(r.ret), allocator.Range{First: r.first, Last: r.last})
	}
	return h
}

// TestHistoryAgainstDefinition compares Check with the definition, pair by pair, on histories most of which are good,
// or wrong in one place.
func TestHistoryAgainstDefinition(t *testing.T) {
	random := Seed(t)
	good, bad := 0, 0
	for range 20_000 {
		requests := randomRequests(random)
		_, err := history(requests...).Check()
		if want := isStrict(requests); (err == nil) != want {
			t.Fatalf("Check: %v; the definition says that this is good: %v\n%v", err, want, requests)
		} else if want {
			good++
		} else {
			bad++
		}
	}
	if good < 1000 || bad < 1000 {
		t.Errorf("%d good histories and %d bad ones: too few of one kind", good, bad)
	}
}

// randomRequests returns up to 12 requests to a counter, in any order. In about half of them something is wrong with
// one or two.
func randomRequests(random *rand.Rand) []request {
	var requests []request
	next := int64(1)
	for i := range random.Int64N(13) {
		first := next + random.Int64N(2)
		next = first + 1 + random.Int64N(4)
		taken := 10 * i // when the counter moved
		requests = append(requests, request{taken - random.Int64N(30), taken + random.Int64N(30), first, next - 1})
	}
	if n := len(requests); n > 0 && random.IntN(2) == 0 {
		x, y := &requests[random.IntN(n)], &requests[random.IntN(n)]
		switch random.IntN(3) {
		case 0:
			x.first, y.first = y.first, x.first
			x.last, y.last = y.last, x.last
		case 1:
			x.call, x.ret = y.ret+1, y.ret+5
		case 2:
			x.last += random.Int64N(3)
		}
	}
	random.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	return requests
}

func isStrict(requests []request) bool {
	for i, x := range requests {
		for j, y := range requests {
			if i != j && x.first <= y.last && y.first <= x.last || x.ret < y.call && y.first <= x.last {
				return false
			}
		}
		if x.first < 1 || x.last < x.first || x.ret < x.call {
			return false
		}
	}
	return true
}

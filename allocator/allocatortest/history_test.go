package allocatortest

import (
	"math/rand/v2"
	"strings"
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

func TestHistory(t *testing.T) {
	for _, test := range []struct {
		name     string
		requests []request
		want     string // in the error; empty: the history is good
	}{
		{name: "no request"},
		{name: "one after the other", requests: []request{{0, 1, 1, 1}, {2, 3, 2, 9}, {4, 5, 10, 10}}},
		{name: "with gaps", requests: []request{{0, 1, 100, 100}, {2, 3, 1000, 1001}}},
		{name: "concurrent, in the other order", requests: []request{{0, 10, 5, 9}, {1, 9, 1, 4}}},
		{name: "a long one beside short ones", requests: []request{{0, 100, 3, 3}, {1, 2, 1, 2}, {3, 4, 4, 4}, {5, 6, 5, 5}}},
		{name: "equal times are concurrent", requests: []request{{0, 10, 5, 5}, {10, 20, 4, 4}}},
		{name: "added in another order", requests: []request{{4, 5, 3, 3}, {0, 1, 1, 1}, {2, 3, 2, 2}}},
		{name: "below", requests: []request{{0, 10, 5, 5}, {11, 20, 4, 4}}, want: "4 (called"},
		{name: "below one that is long past", requests: []request{{0, 1, 50, 50}, {5, 6, 60, 60}, {9, 10, 70, 70}, {20, 21, 55, 55}},
			want: "70 (called"},
		{name: "below the highest of several, not the last", requests: []request{{0, 5, 9, 9}, {0, 6, 1, 1}, {7, 8, 5, 5}}, want: "9 (called"},
		{name: "an ID twice, concurrent", requests: []request{{0, 10, 5, 7}, {0, 10, 7, 9}}, want: "ID 7 is in two requests"},
		{name: "an ID twice, one after the other", requests: []request{{0, 1, 5, 7}, {2, 3, 5, 7}}, want: "ID 5 is in two requests"},
		{name: "a range in another", requests: []request{{0, 1, 1, 9}, {0, 1, 4, 4}}, want: "ID 4 is in two requests"},
		{name: "no range of IDs", requests: []request{{0, 1, 9, 1}}, want: "not a range"},
		{name: "not positive", requests: []request{{0, 1, 0, 1}}, want: "not a range"},
		{name: "answered before it was called", requests: []request{{5, 4, 1, 1}}, want: "before it was called"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := history(test.requests...).Check()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("Check: %v; want %q", err, test.want)
			}
		})
	}
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

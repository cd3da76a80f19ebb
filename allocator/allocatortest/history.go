package allocatortest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// History collects the answered requests of one strict tag and finds those whose IDs are out of
// order. Its methods are safe for concurrent use; the zero value is ready.
type History struct {
	mu       sync.Mutex
	began    time.Time // the call that was added first
	requests []answered
	bad      error // the first request that is wrong by itself
}

// answered is one request: it was sent after call, and its answer had arrived at ret. Both count
// from the first call of the history, because a history has millions of them.
type answered struct {
	call, ret time.Duration
	ids       allocator.Range
}

// text says what a request was.
func (h *History) text(a answered) string {
	return fmt.Sprintf("%v (called at %s, answered at %s)", a.ids, clock(h.began.Add(a.call)), clock(h.began.Add(a.ret)))
}

func clock(t time.Time) string { return t.Format("15:04:05.000000000") }

// Add records one answered request: call is a time before it was sent, ret a time after its answer
// had arrived. Both must have the reading of the monotonic clock that time.Now gives. A strict tag
// answers with exactly one range of consecutive IDs.
func (h *History) Add(call, ret time.Time, ranges ...allocator.Range) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var bad string
	switch {
	case len(ranges) != 1:
		bad = fmt.Sprintf("has %d runs of IDs, want one", len(ranges))
	case ranges[0].First < 1 || ranges[0].Last < ranges[0].First:
		bad = "is not a range of positive IDs"
	case ret.Before(call):
		bad = "was answered before it was called"
	}
	if h.began.IsZero() {
		h.began = call
	}
	if bad == "" {
		h.requests = append(h.requests, answered{call.Sub(h.began), ret.Sub(h.began), ranges[0]})
	} else if h.bad == nil {
		h.bad = fmt.Errorf("the request with %v (called at %s, answered at %s) %s", ranges, clock(call), clock(ret), bad)
	}
}

// Check returns how many requests were added. The error names two requests: no ID may be in both,
// and if one was called after the other was answered, its IDs must be above. Equal times count as
// concurrent. For a counter this is exact: IDs that pass could have been taken one request after
// the other. It needs O(n log n).
func (h *History) Check() (requests int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bad != nil {
		return len(h.requests), h.bad
	}
	all := h.requests
	slices.SortFunc(all, func(x, y answered) int { return cmp.Compare(x.ids.First, y.ids.First) })
	for i := 1; i < len(all); i++ {
		if x, y := all[i-1], all[i]; y.ids.First <= x.ids.Last {
			return len(all), fmt.Errorf("ID %d is in two requests: %s and %s", y.ids.First, h.text(x), h.text(y))
		}
	}
	slices.SortFunc(all, func(x, y answered) int { return cmp.Compare(x.call, y.call) })
	ended := slices.SortedFunc(slices.Values(all), func(x, y answered) int { return cmp.Compare(x.ret, y.ret) })
	var highest answered // of those that were answered before the call
	for _, later := range all {
		for ; ended[0].ret < later.call; ended = ended[1:] {
			if ended[0].ids.Last > highest.ids.Last {
				highest = ended[0]
			}
		}
		if later.ids.First <= highest.ids.Last {
			return len(all), fmt.Errorf("%s was called after %s had been answered, and is not above it",
				h.text(later), h.text(highest))
		}
	}
	return len(all), nil
}

// IDs returns how many IDs the requests have together.
func (h *History) IDs() (ids int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.requests {
		ids += r.ids.Len()
	}
	return ids
}

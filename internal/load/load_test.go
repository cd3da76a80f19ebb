package load

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

// loaded makes a load in virtual time, of calls that take a while which depends on their number, from 1.
func loaded(t *testing.T, l Load, takes func(n int64) time.Duration) (r Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var last atomic.Int64
		var err error
		r, err = l.Run(t.Context(), func(_ context.Context, c *Caller) error {
			for c.Next() {
				time.Sleep(takes(last.Add(1)))
				c.End(nil)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	return r
}

// about reports whether a latency is what it should be, as true as they are recorded.
func about(got, want time.Duration) bool {
	return math.Abs(float64(got-want)) <= 0.01*float64(want)
}

// What waits behind a slow call counts from when it was due: a call that takes a second
// delays 100 calls at 100 a second.
func TestARateHidesNoWaiting(t *testing.T) {
	t.Parallel()
	r := loaded(t, Load{Callers: 1, Rate: 100, Duration: 10 * time.Second}, func(n int64) time.Duration {
		if n == 100 {
			return time.Second
		}
		return ms
	})
	// The k-th of those behind it waits 1 s - k · 9 ms, so some 110 of them wait at all.
	n := r.Latency.TotalCount()
	if n != 1000 || !about(r.At(50), ms) || r.At(90) < 50*ms || r.At(99) < 850*ms || !about(r.At(100), time.Second) {
		t.Errorf("%d calls, p50 %v, p90 %v, p99 %v, at most %v", n, r.At(50), r.At(90), r.At(99), r.At(100))
	}
}

// A load ends with its duration. A call that would be due after the end is not waited for, and one that no caller was
// free for is counted.
func TestALoadEndsInTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		Load
		takes   time.Duration
		calls   int64
		elapsed time.Duration
	}{
		{Load{Callers: 3, Duration: time.Second}, 100 * ms, 30, time.Second},
		{Load{Callers: 3, Rate: 1e-300, Duration: 10 * time.Second}, ms, 1, ms},
		{Load{Callers: 3, Rate: 0.5, Duration: 10 * time.Second}, ms, 5, 8*time.Second + ms},
		{Load{Callers: 2, Rate: 100, Duration: 10 * time.Second}, 100 * ms, 200, 10*time.Second + 10*ms},
		{Load{Callers: 2, Rate: 100, Calls: 300, Duration: 10 * time.Second}, 100 * ms, 200, 10*time.Second + 10*ms},
	} {
		r := loaded(t, c.Load, func(int64) time.Duration { return c.takes })
		if n := r.Latency.TotalCount(); n != c.calls || r.Elapsed > c.elapsed {
			t.Errorf("%+v: %d calls in %v", c.Load, n, r.Elapsed)
		}
	}
}

// A caller rests after its third call, and the fourth one fails: neither is in the latencies.
func TestWhatIsNotMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		r, err := Load{Callers: 1, Duration: time.Hour, Calls: 5}.Run(t.Context(), func(_ context.Context, c *Caller) error {
			for c.Next() {
				n++
				time.Sleep(10 * ms)
				var failed error
				if n == 4 {
					time.Sleep(time.Second)
					failed = errors.New("no")
				}
				c.End(failed)
				if n == 3 {
					time.Sleep(time.Minute)
					c.Rest()
				}
			}
			return nil
		})
		if err != nil || r.Latency.TotalCount() != 4 || !about(r.At(100), 10*ms) {
			t.Errorf("%v, %d calls, at most %v", err, r.Latency.TotalCount(), r.At(100))
		}
	})
}

// The first error ends all callers, also one that waits for its next call. So does the end of the context.
func TestAnErrorEndsALoad(t *testing.T) {
	t.Parallel()
	failed := errors.New("no more")
	for name, c := range map[string]struct {
		Load
		calls int64
		after time.Duration
		err   error
	}{
		"as many calls as can be made": {Load{Callers: 3, Duration: time.Hour}, 1, 20 * ms, failed},
		"a call an hour":               {Load{Callers: 3, Duration: 24 * time.Hour, Rate: 1.0 / 3600}, 1, 20 * ms, failed},
		"its context":                  {Load{Callers: 2, Duration: time.Hour, Rate: 10}, 10, 950 * ms, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 950*ms)
			defer cancel()
			r, err := c.Run(ctx, func(_ context.Context, caller *Caller) error {
				for caller.Next() {
					time.Sleep(ms)
					caller.End(nil)
					if c.err == failed && (caller.now > 10*ms || c.Rate > 0) {
						return failed
					}
				}
				return nil
			})
			if !errors.Is(err, c.err) || r.Elapsed > c.after || r.Latency.TotalCount() < c.calls {
				t.Errorf("%s: %v after %v and %d calls", name, err, r.Elapsed, r.Latency.TotalCount())
			}
		})
	}
}

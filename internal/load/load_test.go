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

func always(d time.Duration) func(int64) time.Duration {
	return func(int64) time.Duration { return d }
}

// about reports whether a latency is what it should be, as true as they are recorded.
func about(got, want time.Duration) bool {
	return math.Abs(float64(got-want)) <= 0.01*float64(want)
}

func TestLatencies(t *testing.T) {
	t.Parallel()
	// 1 of 5 takes 50 ms, 1 of 1,000 takes 200 ms; the others 10 ms.
	r := loaded(t, Load{Callers: 10, Duration: time.Hour, Calls: 10_000}, func(n int64) time.Duration {
		switch {
		case n%1000 == 0:
			return 200 * ms
		case n%5 == 1:
			return 50 * ms
		}
		return 10 * ms
	})
	for percent, want := range map[float64]time.Duration{50: 10 * ms, 90: 50 * ms, 99: 50 * ms, 99.99: 200 * ms, 100: 200 * ms} {
		if got := r.At(percent); !about(got, want) {
			t.Errorf("p%v is %v, want %v", percent, got, want)
		}
	}
	if n := r.Latency.TotalCount(); n != 10_000 || r.PerSecond() != 10_000/r.Elapsed.Seconds() {
		t.Errorf("%d calls in %v, %v a second", n, r.Elapsed, r.PerSecond())
	}
}

func TestALoadEndsWithItsDuration(t *testing.T) {
	t.Parallel()
	r := loaded(t, Load{Callers: 3, Duration: time.Second}, always(100*ms))
	if n := r.Latency.TotalCount(); n != 30 || r.Elapsed != time.Second {
		t.Errorf("%d calls in %v", n, r.Elapsed)
	}
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
	if n != 1000 || r.Unsent != 0 || !about(r.At(50), ms) || r.At(90) < 50*ms || r.At(99) < 850*ms || !about(r.At(100), time.Second) {
		t.Errorf("%d calls, %d not made, p50 %v, p90 %v, p99 %v, at most %v", n, r.Unsent, r.At(50), r.At(90), r.At(99), r.At(100))
	}
}

// A call that would be due after the end is not waited for.
func TestALowRate(t *testing.T) {
	t.Parallel()
	for rate, want := range map[float64]int64{1e-300: 1, 0.5: 5} {
		r := loaded(t, Load{Callers: 3, Rate: rate, Duration: 10 * time.Second}, always(ms))
		if n := r.Latency.TotalCount(); n != want || r.Unsent != 0 || r.Elapsed > 9*time.Second {
			t.Errorf("%v a second: %d calls in %v, %d were not made", rate, n, r.Elapsed, r.Unsent)
		}
	}
}

func TestCallsThatNoCallerWasFreeFor(t *testing.T) {
	t.Parallel()
	for calls, unsent := range map[int64]int64{0: 800, 300: 100} {
		r := loaded(t, Load{Callers: 2, Rate: 100, Calls: calls, Duration: 10 * time.Second}, always(100*ms))
		if n := r.Latency.TotalCount(); n != 200 || r.Unsent != unsent {
			t.Errorf("of at most %d calls %d were made, and %d were not", calls, n, r.Unsent)
		}
	}
}

// A caller rests after its third call, and the fourth one fails: neither is in the latencies.
func TestWhatIsNotMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rested time.Duration
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
					rested = c.Rest()
				}
			}
			return nil
		})
		if err != nil || rested != time.Minute || r.Latency.TotalCount() != 4 || !about(r.At(100), 10*ms) {
			t.Errorf("%v, rested %v, %d calls, at most %v", err, rested, r.Latency.TotalCount(), r.At(100))
		}
	})
}

// The first error ends all callers, also one that waits for its next call.
func TestAnErrorEndsALoad(t *testing.T) {
	t.Parallel()
	failed := errors.New("no more")
	for name, l := range map[string]Load{
		"as many calls as can be made": {Callers: 3, Duration: time.Hour},
		"a call an hour":               {Callers: 3, Duration: 24 * time.Hour, Rate: 1.0 / 3600},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, err := l.Run(t.Context(), func(ctx context.Context, c *Caller) error {
				for c.Next() {
					time.Sleep(ms)
					c.End(nil)
					if c.now > 10*ms || l.Rate > 0 {
						return failed
					}
				}
				return nil
			})
			if !errors.Is(err, failed) || r.Elapsed > 20*ms || r.Latency.TotalCount() < 1 || r.Unsent != 0 {
				t.Errorf("%s: %v after %v and %d calls", name, err, r.Elapsed, r.Latency.TotalCount())
			}
		})
	}
}

func TestACanceledLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 950*ms)
		defer cancel()
		r, err := Load{Callers: 2, Duration: time.Hour, Rate: 10}.Run(ctx, func(_ context.Context, c *Caller) error {
			for c.Next() {
				time.Sleep(ms)
				c.End(nil)
			}
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || r.Latency.TotalCount() != 10 || r.Elapsed != 950*ms || r.Unsent != 0 {
			t.Errorf("%v after %v and %d calls, %d not made", err, r.Elapsed, r.Latency.TotalCount(), r.Unsent)
		}
	})
}

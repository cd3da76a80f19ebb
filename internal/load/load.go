// Package load makes load and measures it: callers that make one call after the other,
// and the latency of each call. `leaf bench` and `make bench` measure with it.
package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Load says which calls are made. Callers is at least 1, Duration above zero.
type Load struct {
	Callers  int           // at the same time
	Duration time.Duration // no call begins later
	Calls    int64         // at most so many; 0: no limit
	Rate     float64       // calls a second of all callers together; 0: as many as they can make
}

// Result is what a load found.
type Result struct {
	Elapsed time.Duration           // until the last caller had ended
	Latency *hdrhistogram.Histogram // of the calls that succeeded, in ns, true to 1 %
}

// PerSecond is how many calls a second succeeded.
func (r Result) PerSecond() float64 { return float64(r.Latency.TotalCount()) / r.Elapsed.Seconds() }

// At is the latency which this percentage of the calls did not exceed; 0 if no call succeeded.
func (r Result) At(percent float64) time.Duration {
	return time.Duration(r.Latency.ValueAtQuantile(percent))
}

// running is a load that runs.
type running struct {
	Load
	begin time.Time
	turns atomic.Int64 // calls that were given to callers, if they are counted
}

// Caller makes one call after the other. It is for one goroutine.
type Caller struct {
	Number  int // from 0
	ctx     context.Context
	load    *running
	latency *hdrhistogram.Histogram
	// Since the load began: a duration is read from the clock in half the time of a [time.Time].
	due, now time.Duration
}

// Run lets all callers work at the same time, and returns when all have ended. What work does
// for each of them is
//
//	for c.Next() {
//		c.End(call(ctx))
//	}
//
// The first error that work returns cancels the context of all callers. Run returns it, or why ctx
// was canceled, with what was measured until then.
func (l Load) Run(ctx context.Context, work func(ctx context.Context, c *Caller) error) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := make([]*Caller, l.Callers)
	run := &running{Load: l}
	for i := range all {
		// A day is longer than any call takes. This is 42 KiB.
		all[i] = &Caller{Number: i, ctx: ctx, load: run, latency: hdrhistogram.New(1, int64(24*time.Hour), 2)}
	}
	var callers sync.WaitGroup
	run.begin = time.Now()
	for _, c := range all {
		callers.Go(func() {
			c.now = time.Since(run.begin)
			if err := work(ctx, c); err != nil {
				cancel(err)
			}
		})
	}
	callers.Wait()
	r := Result{Elapsed: time.Since(run.begin), Latency: all[0].latency}
	for _, c := range all[1:] {
		r.Latency.Merge(c.latency)
	}
	return r, context.Cause(ctx)
}

// Next waits until the caller's next call is due. It returns false if there is none.
func (c *Caller) Next() bool {
	l := c.load
	if c.now >= l.Duration || c.ctx.Err() != nil {
		return false
	}
	c.due = c.now
	if l.Rate == 0 && l.Calls == 0 {
		return true // without a counter that all callers share
	}
	turn := l.turns.Add(1) - 1
	if l.Calls > 0 && turn >= l.Calls {
		return false
	}
	if l.Rate == 0 {
		return true
	}
	after := float64(turn) / l.Rate
	if after >= l.Duration.Seconds() {
		return false
	}
	c.due = time.Duration(after * float64(time.Second))
	if wait := c.due - c.now; wait > 0 {
		select {
		case <-c.ctx.Done():
			return false
		case <-time.After(wait):
		}
		c.due = time.Since(l.begin) // a late timer is not the call's fault
	}
	return true
}

// End ends a call. Its latency counts if err is nil: with a rate from when the call was due,
// which is earlier than it began if no caller was free.
func (c *Caller) End(err error) {
	c.now = time.Since(c.load.begin)
	if err == nil {
		_ = c.latency.RecordValue(int64(c.now - c.due)) // fails beyond a day
	}
}

// Rest ends a pause after a call: the latency of the next one does not include it.
func (c *Caller) Rest() { c.now = time.Since(c.load.begin) }

package main

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// plan says how long and how often everything is measured.
type plan struct {
	rounds   int
	duration time.Duration
	tags     int   // where there are many
	ids      int64 // of a bulk
}

// inTurns measures everything once a round and returns the results of each, by
// round. The order is turned round from one round to the next: what slows the
// machine for a while is to slow all of them.
func inTurns[T any](ctx context.Context, rounds int, measure []func() (T, error)) ([][]T, error) {
	results := make([][]T, len(measure))
	for round := range rounds {
		for i := range measure {
			if round%2 == 1 {
				i = len(measure) - 1 - i
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			runtime.GC() // what the one before left is not this one's to clear
			result, err := measure[i]()
			if err != nil {
				return nil, err
			}
			results[i] = append(results[i], result)
		}
	}
	return results, nil
}

// sample is what one measurement of calls found.
type sample struct {
	calls          float64
	perSecond      float64
	p50, p99, p999 float64 // µs
}

// compare measures calls in turns, each made by so many callers at once, after a
// first round to warm up.
func (p plan) compare(ctx context.Context, callers int, calls ...func(caller int) error) ([][]sample, error) {
	measure := make([]func() (sample, error), len(calls))
	for i, call := range calls {
		if _, err := load(callers, p.duration, 0, call); err != nil {
			return nil, err
		}
		measure[i] = func() (sample, error) { return load(callers, p.duration, 0, call) }
	}
	return inTurns(ctx, p.rounds, measure)
}

// load lets callers make their calls, one after the other each, for d; each makes
// one at least. With a pace a call is due so long after the one before was: one
// that is made later, because that took longer, counts from then.
func load(callers int, d, pace time.Duration, call func(caller int) error) (sample, error) {
	took := make([][]time.Duration, callers)
	failed := make([]error, callers)
	var wg sync.WaitGroup
	begin := time.Now()
	end := begin.Add(d)
	for i := range callers {
		wg.Go(func() {
			due := time.Now().Add(pace * time.Duration(i) / time.Duration(callers)) // not all at once
			for start := await(due); len(took[i]) == 0 || start.Before(end); {
				if failed[i] = call(i); failed[i] != nil {
					return
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(start))
				start = now
				if pace > 0 {
					due = due.Add(pace)
					start = await(due)
				}
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(begin)
	if err := errors.Join(failed...); err != nil {
		return sample{}, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	at := func(q float64) float64 {
		return float64(all[int(q*float64(len(all)))].Nanoseconds()) / 1e3
	}
	return sample{float64(len(all)), float64(len(all)) / elapsed.Seconds(), at(0.50), at(0.99), at(0.999)}, nil
}

// await returns when a call that is due then begins: later only if the timer is
// late, which is no fault of the call's.
func await(due time.Time) time.Time {
	if wait := time.Until(due); wait > 0 {
		time.Sleep(wait)
		return time.Now()
	}
	return due
}

// median is the median of one field of the results.
func median[T any](results []T, field func(T) float64) float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = field(r)
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2
	}
	return values[middle]
}

// ratio is the median of the rounds' ratios of ours to the baseline's.
func ratio[T any](ours, baseline []T, field func(T) float64) float64 {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = field(ours[i]) / field(baseline[i])
	}
	return median(ratios, func(r float64) float64 { return r })
}

// The fields of a sample.
func perSecond(s sample) float64 { return s.perSecond }
func p50(s sample) float64       { return s.p50 }
func p99(s sample) float64       { return s.p99 }
func p999(s sample) float64      { return s.p999 }

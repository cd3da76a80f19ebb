package main

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/leafbus/leafbus/internal/load"
)

// lab is where a scenario is measured.
type lab struct {
	ctx context.Context
	plan
	closers []func() error
}

// failure is the panic by which a scenario ends early.
type failure struct{ error }

// check ends the scenario if there is an error.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must is check for a call that also returns a value.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// inLab runs a scenario, and closes what it has opened.
func inLab(ctx context.Context, p plan, scenario func(*lab) *table) (t *table, err error) {
	l := &lab{ctx: ctx, plan: p}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
		for _, end := range slices.Backward(l.closers) {
			err = errors.Join(err, end())
		}
	}()
	return scenario(l), nil
}

// atEnd calls what closes something after the scenario: the last first.
func (l *lab) atEnd(end func() error) { l.closers = append(l.closers, end) }

// sample is what one measurement found.
type sample map[figure]float64

// figure names what a sample has.
type figure string

const (
	perSecond   figure = "calls a second"
	p50         figure = "p50" // ns, as all latencies
	p99         figure = "p99"
	tagsASecond figure = "tags a second"
)

// way is one way to do the job, Leafbus's or a baseline's. It measures it once, with so many callers.
type way func(callers int) (sample, error)

// row is a line of a table: ways that are compared with each other.
type row struct {
	name    string
	callers int
	ways    []way
}

// measure adds rows to a table. It warms up each way of a row, and then measures them in turns.
func (l *lab) measure(t *table, rows ...row) *table {
	for _, r := range rows {
		for _, w := range r.ways {
			must(w(r.callers))
		}
		t.add(r.name, r.callers, l.inTurns(l.rounds, r.callers, r.ways...)...)
	}
	return t
}

// inTurns measures each way once a round, and returns the samples of each. The order is reversed
// from one round to the next: what slows the machine for a while must slow all of them.
func (l *lab) inTurns(rounds, callers int, ways ...way) [][]sample {
	samples := make([][]sample, len(ways))
	for round := range rounds {
		for i := range ways {
			if round%2 == 1 {
				i = len(ways) - 1 - i
			}
			check(l.ctx.Err())
			runtime.GC() // so that nobody clears what the measurement before has left
			samples[i] = append(samples[i], must(ways[i](callers)))
		}
	}
	return samples
}

// calls is a way whose callers make calls, one after the other, as fast as they can.
func (l *lab) calls(call func(caller int) error) way {
	return func(callers int) (sample, error) { return l.load(callers, call) }
}

// load lets callers make calls.
func (l *lab) load(callers int, call func(caller int) error) (sample, error) {
	r, err := load.Load{Callers: callers, Duration: l.duration}.Run(l.ctx, func(_ context.Context, c *load.Caller) error {
		for c.Next() {
			err := call(c.Number)
			c.End(err)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return sample{perSecond: r.PerSecond(), p50: float64(r.At(50)), p99: float64(r.At(99))}, err
}

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

// way is one way to do the job, Leafbus's or a baseline's. It measures it once, with so many callers.
type way func(callers int) (sample, error)

// row is a line of a table: two ways that are compared with each other.
type row struct {
	name       string
	callers    int
	base, ours way
}

// measure makes a table. It warms up both ways of a row, and then measures them in turns. The order is reversed from
// one round to the next: what slows the machine for a while must slow both.
func (l *lab) measure(title string, rows ...row) *table {
	t := newTable(title)
	for _, r := range rows {
		base, ours := make([]sample, l.rounds), make([]sample, l.rounds)
		turn := func(w way) sample {
			check(l.ctx.Err())
			runtime.GC() // so that nobody clears what the measurement before has left
			return must(w(r.callers))
		}
		turn(r.base)
		turn(r.ours)
		for i := range l.rounds {
			if i%2 == 0 {
				base[i] = turn(r.base)
			}
			ours[i] = turn(r.ours)
			if i%2 == 1 {
				base[i] = turn(r.base)
			}
		}
		t.add(r.name, r.callers, base, ours)
	}
	return t
}

// calls is a way whose callers make calls, one after the other, as fast as they can.
func (l *lab) calls(call func(caller int) error) way {
	return func(callers int) (sample, error) {
		return l.run(load.Load{Callers: callers, Duration: l.duration}, call)
	}
}

func (l *lab) run(of load.Load, call func(caller int) error) (sample, error) {
	r, err := of.Run(l.ctx, func(_ context.Context, c *load.Caller) error {
		for c.Next() {
			err := call(c.Number)
			c.End(err)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return sample{r.PerSecond(), float64(r.At(50)) / 1e3, float64(r.At(99)) / 1e3}, err
}

package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// coalesced compares callers of Next, who share requests, with callers of Take,
// each with a request of its own for one ID, and with as many requests to an echo.
func coalesced(ctx context.Context, p plan) (t *table, err error) {
	tag := allocator.Tag{Name: "bench", MaxID: 1, Step: allocator.DefaultStep}
	s, stop, err := openWith(tag)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	echo, err := s.echo()
	if err != nil {
		return nil, err
	}
	defer echo.Close()
	nc, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	client := bus.NewClient(nc)

	t = newTable("one ID a call, over NATS", "callers", "IDs/s", "Take's", "ratio", "echo's", "ratio", "requests/s", "Take's", "IDs per request",
		"p50 µs", "Take's", "p99 µs", "Take's")
	for _, callers := range []int{1, 64, 1024} {
		own := make([]context.Context, callers) // as callers have
		for i := range own {
			var cancel context.CancelFunc
			own[i], cancel = context.WithCancel(ctx)
			defer cancel()
		}
		bare := p.shared(nc, callers, func(int) error { return ask(nc, echoSubject, []byte(echoBody)) })
		take := p.shared(nc, callers, func(i int) error { _, err := client.Take(own[i], tag.Name, 1); return err })
		next := p.shared(nc, callers, func(i int) error { _, err := client.Next(own[i], tag.Name); return err })
		measure := []func() (shared, error){bare, take, next}
		for _, warmUp := range measure {
			if _, err := warmUp(); err != nil {
				return nil, err
			}
		}
		results, err := inTurns(ctx, p.rounds, measure)
		if err != nil {
			return nil, err
		}
		echoes, base, ours := results[0], results[1], results[2]
		t.add("Next", strconv.Itoa(callers),
			whole(median(ours, shared.idsPerSecond)), whole(median(base, shared.idsPerSecond)), hundredths(ratio(ours, base, shared.idsPerSecond)),
			whole(median(echoes, shared.idsPerSecond)), hundredths(ratio(ours, echoes, shared.idsPerSecond)),
			whole(median(ours, shared.requestsPerSecond)), whole(median(base, shared.requestsPerSecond)), tenths(median(ours, shared.idsPerRequest)),
			whole(median(ours, shared.p50)), whole(median(base, shared.p50)),
			whole(median(ours, shared.p99)), whole(median(base, shared.p99)))
	}
	return t, nil
}

// shared is a sample of calls for one ID each, with the requests that they took:
// all that the connection published.
type shared struct {
	sample
	requests float64
}

func (p plan) shared(nc *nats.Conn, callers int, call func(caller int) error) func() (shared, error) {
	return func() (shared, error) {
		before := nc.Stats().OutMsgs
		s, err := load(callers, p.duration, 0, call)
		return shared{s, float64(nc.Stats().OutMsgs - before)}, err
	}
}

func (s shared) idsPerSecond() float64      { return s.sample.perSecond }
func (s shared) idsPerRequest() float64     { return s.calls / s.requests }
func (s shared) requestsPerSecond() float64 { return s.sample.perSecond / s.idsPerRequest() }
func (s shared) p50() float64               { return s.sample.p50 }
func (s shared) p99() float64               { return s.sample.p99 }

package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

const (
	requestsPerSecond figure = "requests a second"
	idsPerRequest     figure = "IDs per request"
	waitsPerMillion   figure = "waits per million IDs"
)

// takes compares callers of Take with callers that make bare requests: to an echo, for the rate, and to
// the same generator, for what a call allocates. The allocations are those of the whole process.
func takes(l *lab) *table {
	tag := tagNamed("bench", allocator.DefaultStep)
	s := l.site()
	s.generate([]allocator.Tag{tag})
	s.echo()
	nc := s.dial()
	client := bus.NewClient(nc)
	take := func() error { _, err := client.Take(l.ctx, tag.Name, 1); return err }
	ways := []way{
		l.echoes(nc),
		l.calls(func(int) error { return take() }),
		l.loop(repeat(func() error { return ask(nc, segment(tag), []byte("1")) })),
		l.loop(repeat(take)),
	}

	const echo, ours, bareCounted, oursCounted = 0, 1, 2, 3
	return l.measure(newTable("Take of one ID, over NATS", "callers",
		of("calls/s", ours, perSecond, whole), of("echo's", echo, perSecond, whole), ratio("ratio", ours, echo, perSecond, hundredths),
		of("allocations", oursCounted, allocations, whole), of("a bare request's", bareCounted, allocations, whole),
		of("p50 µs", ours, p50, thousands), of("echo's", echo, p50, thousands),
		of("p99 µs", ours, p99, thousands), of("echo's", echo, p99, thousands)),
		row{"Take", 1, ways},
		row{"Take", 64, ways},
	)
}

// connections compares callers that share a connection with callers that have one each. The echo shows what of the
// difference is the cost of NATS itself.
func connections(l *lab) *table {
	const callers = 64
	tag := tagNamed("bench", allocator.DefaultStep)
	s := l.site()
	s.generate([]allocator.Tag{tag})
	s.echo()
	var own []*nats.Conn // of each caller; the first is the one that all share
	var clients []*bus.Client
	for range callers {
		nc := s.dial()
		own, clients = append(own, nc), append(clients, bus.NewClient(nc))
	}
	take := func(c *bus.Client) error { _, err := c.Take(l.ctx, tag.Name, 1); return err }
	echo := func(nc *nats.Conn) error { return ask(nc, echoSubject, []byte(echoBody)) }

	const shared, each = 0, 1
	return l.measure(newTable("a connection for each caller, over NATS", "callers",
		of("calls/s on one connection", shared, perSecond, whole), of("on one each", each, perSecond, whole),
		ratio("ratio", each, shared, perSecond, hundredths),
		of("p99 µs on one connection", shared, p99, thousands), of("on one each", each, p99, thousands)),
		row{"Take", callers, []way{
			l.calls(func(int) error { return take(clients[0]) }),
			l.calls(func(i int) error { return take(clients[i]) }),
		}},
		row{"echo", callers, []way{
			l.calls(func(int) error { return echo(own[0]) }),
			l.calls(func(i int) error { return echo(own[i]) }),
		}},
	)
}

// coalesced compares callers of Next, who share requests, with callers of Take,
// each with a request of its own for one ID, and with as many requests to an echo.
func coalesced(l *lab) *table {
	tag := tagNamed("bench", allocator.DefaultStep)
	s := l.site()
	s.generate([]allocator.Tag{tag})
	s.echo()
	nc := s.dial()
	client := bus.NewClient(nc)
	own := l.contexts(1024)
	ways := []way{
		l.echoes(nc),
		l.shared(nc, func(i int) error { _, err := client.Take(own[i], tag.Name, 1); return err }),
		l.shared(nc, func(i int) error { _, err := client.Next(own[i], tag.Name); return err }),
	}

	const echo, take, next = 0, 1, 2
	return l.measure(newTable("one ID a call, over NATS", "callers",
		of("IDs/s", next, perSecond, whole),
		of("Take's", take, perSecond, whole), ratio("ratio", next, take, perSecond, hundredths),
		of("echo's", echo, perSecond, whole), ratio("ratio", next, echo, perSecond, hundredths),
		of("requests/s", next, requestsPerSecond, whole), of("Take's", take, requestsPerSecond, whole),
		of("IDs per request", next, idsPerRequest, tenths),
		of("p50 µs", next, p50, thousands), of("Take's", take, p50, thousands),
		of("p99 µs", next, p99, thousands), of("Take's", take, p99, thousands)),
		row{"Next", 1, ways},
		row{"Next", 64, ways},
		row{"Next", 1024, ways},
	)
}

// contexts makes a context for each caller, until the end of the scenario.
func (l *lab) contexts(callers int) []context.Context {
	own := make([]context.Context, callers)
	for i := range own {
		ctx, cancel := context.WithCancel(l.ctx)
		l.atEnd(func() error { cancel(); return nil })
		own[i] = ctx
	}
	return own
}

// shared is a way whose callers get an ID with each call. Its requests are all that the
// connection publishes.
func (l *lab) shared(nc *nats.Conn, call func(caller int) error) way {
	return func(callers int) (sample, error) {
		before := nc.Stats().OutMsgs
		s, err := l.load(callers, 0, call)
		s[idsPerRequest] = s[made] / float64(nc.Stats().OutMsgs-before)
		s[requestsPerSecond] = s[perSecond] / s[idsPerRequest]
		return s, err
	}
}

// pools compares a pool's Next with the addition that any counter needs, made in place and in
// a function that is called, while the pool is filled over NATS. A call is far shorter than it
// takes to time it, so calls are timed, one by one, in measurements of their own, and so are the
// additions: what the clock and the machine cost is in both.
func pools(l *lab) *table {
	// A step of at least the usual batch: else each costs a write to the store.
	tag := tagNamed("bench", bus.DefaultMostAhead)
	s := l.site()
	s.generate([]allocator.Tag{tag})
	pool := must(bus.NewClient(s.dial()).Pool(tag.Name))
	l.atEnd(func() error { pool.Close(); return nil })
	ctx, cancel := context.WithTimeout(l.ctx, time.Hour) // for a deadline: see waits
	l.atEnd(func() error { cancel(); return nil })

	var counter atomic.Int64
	ways := []way{
		l.loop(func(n int) error { return add(&counter, n) }),
		l.loop(func(n int) error { return addCalled(&counter, n) }),
		l.draws(ctx, pool),
		l.calls(func(int) error { counter.Add(1); return nil }),
		l.calls(func(int) error { _, err := pool.Next(ctx); return err }),
	}

	const bare, called, next, bareTimed, nextTimed = 0, 1, 2, 3, 4
	return l.measure(newTable("pool of a tag's IDs", "goroutines",
		of("ns/ID", next, nsPerID, tenths),
		of("atomic add's", bare, nsPerID, tenths), ratio("of its speed", bare, next, nsPerID, hundredths),
		of("called add's", called, nsPerID, tenths), ratio("of its speed", called, next, nsPerID, hundredths),
		of("allocations", next, allocations, whole), meanOf("waits per million IDs", next, waitsPerMillion, hundredths),
		of("p50 ns, timed", nextTimed, p50, whole), of("atomic add's", bareTimed, p50, whole),
		of("p99.99 ns, timed", nextTimed, p9999, whole), of("atomic add's", bareTimed, p9999, whole),
		ratio("ratio", nextTimed, bareTimed, p9999, hundredths)),
		row{"Next", 1, ways},
		row{"Next", 2, ways},
	)
}

func add(counter *atomic.Int64, n int) error {
	for range n {
		counter.Add(1)
	}
	return nil
}

// addCalled adds as a function does that the compiler cannot put in its caller's
// place.
func addCalled(counter *atomic.Int64, n int) error {
	for range n {
		addOne(counter)
	}
	return nil
}

//go:noinline
func addOne(counter *atomic.Int64) int64 { return counter.Add(1) }

// draws is a way whose callers take IDs from a pool, and that counts how often they wait.
func (l *lab) draws(ctx context.Context, pool *bus.Pool) way {
	var taken atomic.Int64
	waited := &waits{Context: ctx}
	draw := l.loop(func(n int) error {
		taken.Add(int64(n))
		for range n {
			if _, err := pool.Next(waited); err != nil {
				return err
			}
		}
		return nil
	})
	return func(callers int) (sample, error) {
		taken.Store(0)
		waited.n.Store(0)
		s, err := draw(callers)
		if err == nil {
			s[waitsPerMillion] = float64(waited.n.Load()) / float64(taken.Load()) * 1e6
		}
		return s, err
	}
}

// waits is a context that counts who waits: a pool asks for a deadline only
// then, and finding one it does not ask again.
type waits struct {
	context.Context
	n atomic.Int64
}

// Deadline implements [context.Context].
func (w *waits) Deadline() (time.Time, bool) {
	w.n.Add(1)
	return w.Context.Deadline()
}

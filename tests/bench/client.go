package main

import (
	"context"
	"sync/atomic"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// goClient compares calls of the Go client for one ID with bare requests to an echo.
func goClient(l *lab) *table {
	tag := tagNamed("bench", allocator.DefaultStep)
	s := l.site()
	s.generate([]allocator.Tag{tag})
	s.echo()
	nc := s.dial()
	client := bus.NewClient(nc)
	pool := must(client.Pool(tag.Name))
	l.atEnd(func() error { pool.Close(); return nil })
	// A context for each caller: all would wait for the lock of one.
	contexts := make([]context.Context, 1024)
	for i := range contexts {
		ctx, cancel := context.WithCancel(l.ctx)
		l.atEnd(func() error { cancel(); return nil })
		contexts[i] = ctx
	}
	echo := l.echoes(nc)
	take := l.calls(func(i int) error { _, err := client.Take(contexts[i], tag.Name, 1); return err })
	next := l.calls(func(i int) error { _, err := client.Next(contexts[i], tag.Name); return err })
	var counter atomic.Int64
	added := l.calls(func(int) error { counter.Add(1); return nil })
	pooled := l.calls(func(i int) error { _, err := pool.Next(contexts[i]); return err })

	const base, ours = 0, 1
	return l.measure(newTable("one ID a call, over NATS", "callers",
		of("IDs/s", ours, perSecond, whole), of("baseline's", base, perSecond, whole),
		ratio("ratio", ours, base, perSecond, hundredths),
		of("p50 µs", ours, p50, thousands), of("baseline's", base, p50, thousands),
		of("p99 µs", ours, p99, thousands), of("baseline's", base, p99, thousands)),
		row{"Take, beside an echo", 1, []way{echo, take}},
		row{"Take, beside an echo", 64, []way{echo, take}},
		row{"Next, beside an echo", 1, []way{echo, next}},
		row{"Next, beside an echo", 64, []way{echo, next}},
		row{"Next, beside an echo", 1024, []way{echo, next}},
		row{"Pool.Next, beside an atomic addition", 1, []way{added, pooled}},
		row{"Pool.Next, beside an atomic addition", 2, []way{added, pooled}},
	)
}

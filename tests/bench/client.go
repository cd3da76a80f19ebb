package main

import (
	"context"

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

	const base, ours = 0, 1
	return l.measure(newTable("one ID a call, over NATS", "callers",
		of("IDs/s", ours, perSecond, whole), of("echo's", base, perSecond, whole),
		ratio("ratio", ours, base, perSecond, hundredths),
		of("p50 µs", ours, p50, thousands), of("echo's", base, p50, thousands),
		of("p99 µs", ours, p99, thousands), of("echo's", base, p99, thousands)),
		row{"Take", 1, []way{echo, take}},
		row{"Take", 64, []way{echo, take}},
		row{"Next", 1, []way{echo, next}},
		row{"Next", 64, []way{echo, next}},
		row{"Next", 1024, []way{echo, next}},
	)
}

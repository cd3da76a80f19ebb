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

	return l.measure("Go client, 1 ID a call, beside an echo",
		row{"Take", 1, echo, take},
		row{"Take", 64, echo, take},
		row{"Next", 1, echo, next},
		row{"Next", 64, echo, next},
		row{"Next", 1024, echo, next},
	)
}

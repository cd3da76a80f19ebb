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
	s.generate([]allocator.Tag{tag}, nil)
	s.echo()
	nc := s.dial()
	client := bus.NewClient(nc)
	ctx := context.Background() // one that can end has a lock, for which all callers would wait
	echo := l.echoes(nc)
	take := l.calls(func(int) error { _, err := client.Take(ctx, tag.Name, 1); return err })
	next := l.calls(func(int) error { _, err := client.Next(ctx, tag.Name); return err })

	return l.measure("Go client, 1 ID a call, beside an echo",
		row{"Take", 1, echo, take},
		row{"Take", 64, echo, take},
		row{"Next", 1, echo, next},
		row{"Next", 64, echo, next},
		row{"Next", 1024, echo, next},
	)
}

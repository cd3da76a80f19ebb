package main

import (
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
)

// strictTags compares requests for IDs of a strict tag with requests to an echo, and for IDs of a tag in trend order.
// All generators run in this process.
func strictTags(l *lab) *table {
	trend := tagNamed("bench", allocator.DefaultStep)
	strict := allocator.Tag{Name: "bench.strict", MaxID: 1, Order: allocator.Strict}
	start := func(generators int) *nats.Conn {
		s := l.site()
		for range generators {
			s.generate([]allocator.Tag{trend, strict})
		}
		s.echo()
		return s.dial()
	}
	one, three := start(1), start(3)
	beside := func(nc *nats.Conn) []way {
		return []way{l.echoes(nc), l.requests(nc, segment(trend), 1), l.requests(nc, segment(strict), 1)}
	}

	const echo, base, ours = 0, 1, 2
	t := newTable("strict tag, over NATS, 1 ID a request", "callers",
		of("requests/s", ours, perSecond, whole), of("echo's", echo, perSecond, whole),
		ratio("ratio", ours, echo, perSecond, hundredths),
		of("trend's", base, perSecond, whole), ratio("ratio", ours, base, perSecond, hundredths),
		of("p50 µs", ours, p50, thousands), of("p99 µs", ours, p99, thousands), of("echo's", echo, p99, thousands))
	for _, callers := range []int{1, 64, 1024} {
		l.measure(t, row{"generators: 1", callers, beside(one)}, row{"generators: 3", callers, beside(three)})
	}
	return t
}

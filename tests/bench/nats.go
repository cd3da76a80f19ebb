package main

import (
	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/wire"
)

// overNATS compares requests for IDs with requests to an echo. Both responders sit at the server in the same way; one
// client connection asks both.
func overNATS(l *lab) *table {
	tag := tagNamed("bench", allocator.DefaultStep)
	s := l.site()
	s.generate([]allocator.Tag{tag})
	s.echo()
	nc := s.dial()
	beside := func(subject string, count int64) []way { return []way{l.echoes(nc), l.requests(nc, subject, count)} }

	const echo, ours = 0, 1
	return l.measure(newTable("over NATS", "callers",
		of("requests/s", ours, perSecond, whole), of("echo's", echo, perSecond, whole),
		ratio("ratio", ours, echo, perSecond, hundredths),
		of("p50 µs", ours, p50, thousands), of("echo's", echo, p50, thousands),
		of("p99 µs", ours, p99, thousands), of("echo's", echo, p99, thousands)),
		row{"1 ID", 1, beside(segment(tag), 1)},
		row{"1 ID", 16, beside(segment(tag), 1)},
		row{"1 ID", 64, beside(segment(tag), 1)},
		row{"1,000 IDs", 16, beside(segment(tag), 1000)},
		row{"1 snowflake", 1, beside(wire.SubjectSnowflake, 1)},
		row{"1 snowflake", 64, beside(wire.SubjectSnowflake, 1)},
	)
}

// opaqueTags compares requests for IDs of an opaque tag with requests for IDs of a plain one.
func opaqueTags(l *lab) *table {
	plain, opaque := tagNamed("bench", allocator.DefaultStep), tagNamed("bench.opaque", allocator.DefaultStep)
	s := l.site()
	s.generate([]allocator.Tag{plain})
	nc := s.dial()
	must(admin.NewClient(nc).CreateTag(l.ctx, admin.TagSpec{Tag: opaque.Name, Opaque: "53"}))
	beside := func(count int64) []way {
		return []way{l.requests(nc, segment(plain), count), l.requests(nc, segment(opaque), count)}
	}

	const base, ours = 0, 1
	return l.measure(newTable("opaque tag, 53 bits, over NATS", "callers",
		of("requests/s", ours, perSecond, whole), of("plain tag's", base, perSecond, whole),
		ratio("ratio", ours, base, perSecond, hundredths),
		of("p50 µs", ours, p50, thousands), of("plain tag's", base, p50, thousands)),
		row{"1 ID a request", 1, beside(1)},
		row{"1 ID a request", 64, beside(1)},
		row{"100 IDs a request", 16, beside(100)},
	)
}

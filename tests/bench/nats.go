package main

import (
	"fmt"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/wire"
)

// overNATS compares requests for IDs with requests to an echo. Both responders sit at the server in the same way; one
// client connection asks both.
func overNATS(l *lab) *table {
	tag := tagNamed("bench", allocator.DefaultStep)
	s := l.site()
	s.generate([]allocator.Tag{tag}, nil)
	s.echo()
	nc := s.dial()
	of := func(name string, callers int, subject string, count int64) row {
		return row{name, callers, l.echoes(nc), l.requests(nc, subject, count)}
	}
	return l.measure("over NATS, beside an echo",
		of("1 ID", 1, segment(tag), 1),
		of("1 ID", 16, segment(tag), 1),
		of("1 ID", 64, segment(tag), 1),
		of("1,000 IDs", 16, segment(tag), 1000),
		of("1 snowflake", 1, wire.SubjectSnowflake, 1),
		of("1 snowflake", 64, wire.SubjectSnowflake, 1),
	)
}

// opaqueTags compares requests for IDs of an opaque tag with requests for IDs of a plain one.
func opaqueTags(l *lab) *table {
	plain, opaque := tagNamed("bench", allocator.DefaultStep), tagNamed("bench.opaque", allocator.DefaultStep)
	s := l.site()
	s.generate([]allocator.Tag{plain}, nil)
	nc := s.dial()
	must(admin.NewClient(nc).CreateTag(l.ctx, admin.TagSpec{Tag: opaque.Name, Opaque: "53"}))
	of := func(name string, callers int, count int64) row {
		return row{name, callers, l.requests(nc, segment(plain), count), l.requests(nc, segment(opaque), count)}
	}
	return l.measure("opaque tag, 53 bits, beside a plain one",
		of("1 ID", 1, 1), of("1 ID", 64, 1), of("100 IDs", 16, 100))
}

// strictTags compares requests for IDs of a strict tag with requests to an echo, and for IDs of a tag in trend order.
// All generators run in this process.
func strictTags(l *lab) *table {
	trend := tagNamed("bench", allocator.DefaultStep)
	strict := allocator.Tag{Name: "bench.strict", MaxID: 1, Order: allocator.Strict}
	var rows []row
	for _, generators := range []int{1, 3} {
		s := l.site()
		for range generators {
			s.generate([]allocator.Tag{trend, strict}, nil)
		}
		s.echo()
		nc := s.dial()
		for _, callers := range []int{1, 64, 1024} {
			name, ours := fmt.Sprintf("generators: %d, beside ", generators), l.requests(nc, segment(strict), 1)
			rows = append(rows, row{name + "an echo", callers, l.echoes(nc), ours},
				row{name + "trend order", callers, l.requests(nc, segment(trend), 1), ours})
		}
	}
	return l.measure("strict tag, over NATS", rows...)
}

package main

import (
	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
)

// concealedNamed is a new opaque tag.
func concealedNamed(name string, d opaque.Domain) allocator.Tag {
	order := allocator.OpaqueOrder(d)
	rules := must(allocator.NewRules(allocator.RulesChange{}, order))
	return allocator.Tag{Name: name, MaxID: 1, Step: allocator.DefaultStep, Order: order, Rules: rules}
}

// opaqueTags compares requests for IDs of an opaque tag with requests for IDs of a plain one.
func opaqueTags(l *lab) *table {
	plain, concealed := tagNamed("bench", allocator.DefaultStep), concealedNamed("bench.opaque", opaque.Bits53)
	s := l.site()
	s.generate([]allocator.Tag{plain, concealed})
	nc := s.dial()
	const base, ours = 0, 1
	var rows []row
	for _, r := range []struct {
		name    string
		callers int
		count   int64
	}{{"IDs a request: 1", 1, 1}, {"IDs a request: 1", 16, 1}, {"IDs a request: 1", 64, 1}, {"IDs a request: 100", 16, 100}} {
		rows = append(rows, row{r.name, r.callers, []way{l.requests(nc, segment(plain), r.count), l.requests(nc, segment(concealed), r.count)}})
	}
	return l.measure(newTable("opaque tag of 53 bits, over NATS", "callers",
		of("requests/s", ours, perSecond, whole), of("plain tag's", base, perSecond, whole), ratio("ratio", ours, base, perSecond, hundredths),
		of("p50 µs", ours, p50, thousands), of("plain", base, p50, thousands),
		of("p99 µs", ours, p99, thousands), of("plain", base, p99, thousands)), rows...)
}

// opaqueInProcess compares an ID of an opaque tag with one of a plain tag, from a generator in this process, as its
// HTTP face takes it.
func opaqueInProcess(l *lab) *table {
	plain := tagNamed("bench", allocator.DefaultStep)
	domains := []opaque.Domain{opaque.Bits63, opaque.Bits53, "d12"}
	tags := []allocator.Tag{plain}
	for _, d := range domains {
		tags = append(tags, concealedNamed("bench."+string(d), d))
	}
	g := l.site().generate(tags)
	take := func(tag allocator.Tag) way {
		return l.loop(repeat(func() error { _, err := g.Take(l.ctx, tag.Name, 1); return err }))
	}
	const base, ours = 0, 1
	var rows []row
	for i, d := range domains {
		rows = append(rows, row{"domain " + string(d), 1, []way{take(plain), take(tags[i+1])}})
	}
	return l.measure(newTable("opaque tag, in process, one ID", "goroutines",
		of("ns/ID", ours, nsPerID, tenths), of("plain tag's", base, nsPerID, tenths), ratio("ratio", ours, base, nsPerID, tenths),
		of("allocations", ours, allocations, whole)), rows...)
}

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/gateway"
	"github.com/leafbus/leafbus/bus/generator"
)

// overNATS compares requests for IDs with requests to an echo. Both responders
// sit at the server in the same way; one client connection asks both.
func overNATS(l *lab) *table {
	small, middle := tagNamed("bench", allocator.DefaultStep), tagNamed("bench.1000", allocator.DefaultStep)
	// The tag of the largest batches has a larger step, as its operator would give it: a batch
	// beyond the step takes a write to the store. Even so these batches use up the largest
	// step within milliseconds, so refills are part of their row.
	large := tagNamed("bench.100000", 1_000_000)
	s := l.site()
	s.generate([]allocator.Tag{small, middle, large})
	s.echo()
	nc := s.dial()
	beside := func(subject string, count int64) []way { return []way{l.echoes(nc), l.requests(nc, subject, count)} }

	const echo, ours = 0, 1
	return l.measure(newTable("over NATS", "callers",
		of("requests/s", ours, perSecond, whole), of("echo's", echo, perSecond, whole), ratio("ratio", ours, echo, perSecond, hundredths),
		of("IDs/s", ours, idsPerSecond, whole),
		of("p50 µs", ours, p50, thousands), of("echo's", echo, p50, thousands),
		of("p99 µs", ours, p99, thousands), of("echo's", echo, p99, thousands),
		of("p99.9 µs", ours, p999, thousands), of("echo's", echo, p999, thousands)),
		row{"segment, IDs a request: 1", 1, beside(segment(small), 1)},
		row{"segment, IDs a request: 1", 16, beside(segment(small), 1)},
		row{"segment, IDs a request: 1", 64, beside(segment(small), 1)},
		row{"segment, IDs a request: 1,000", 1, beside(segment(middle), 1000)},
		row{"segment, IDs a request: 1,000", 16, beside(segment(middle), 1000)},
		row{"segment, IDs a request: 100,000", 1, beside(segment(large), 100_000)},
		row{"segment, IDs a request: 100,000", 16, beside(segment(large), 100_000)},
		row{"snowflake, IDs a request: 1", 1, beside(bus.SubjectSnowflake, 1)},
		row{"snowflake, IDs a request: 1", 16, beside(bus.SubjectSnowflake, 1)},
		row{"snowflake, IDs a request: 1", 64, beside(bus.SubjectSnowflake, 1)},
		row{"snowflake, IDs a request: 10", 16, beside(bus.SubjectSnowflake, 10)},
	)
}

// metricsCost compares requests to a generator that has metrics with those to one that
// has none, each on a site of its own. A second one that has none shows how far
// from 1 a ratio is by chance. Nobody scrapes here: see metricsAlone.
func metricsCost(l *lab) *table {
	tag := tagNamed("bench", allocator.DefaultStep)
	plain, observed, again := l.site(), l.site(), l.site()
	plain.generate([]allocator.Tag{tag})
	observed.faced(tag)
	again.generate([]allocator.Tag{tag})
	plainConn, observedConn, againConn := plain.dial(), observed.dial(), again.dial()
	all := func(subject string) []way {
		return []way{l.requests(plainConn, subject, 1), l.requests(observedConn, subject, 1), l.requests(againConn, subject, 1)}
	}

	const without, with, second = 0, 1, 2
	return l.measure(newTable("metrics, over NATS, 1 ID a request", "callers",
		of("requests/s", with, perSecond, whole), of("without", without, perSecond, whole), ratio("ratio", with, without, perSecond, fourPlaces),
		of("a second without", second, perSecond, whole), ratio("ratio", second, without, perSecond, fourPlaces),
		of("p50 µs", with, p50, thousands), of("without", without, p50, thousands),
		of("p99 µs", with, p99, thousands), of("without", without, p99, thousands)),
		row{"segment", 16, all(segment(tag))},
		row{"segment", 64, all(segment(tag))},
		row{"snowflake", 16, all(bus.SubjectSnowflake)},
		row{"snowflake", 64, all(bus.SubjectSnowflake)},
	)
}

// metricsAlone measures what metrics add to a request by itself, beside the time from
// one request over NATS to the next, and a scrape beside a second: no Prometheus
// scrapes more often. On two goroutines that do nothing else, counting takes longer
// than in a generator, where they seldom count at the same time.
func metricsAlone(l *lab) *table {
	const callers = 64
	s := l.site()
	face := s.faced(tagNamed("bench", allocator.DefaultStep))
	nc := s.dial()
	metrics := gateway.NewMetrics()
	asked := l.loop(repeat(func() error { return ask(nc, bus.SubjectSnowflake, []byte("1")) }))
	request := func(int) (sample, error) { return asked(callers) }
	second := constant(sample{nsPerID: float64(time.Second)})
	scrape := l.loop(repeat(func() error { return scrape(face) }))
	clock := l.loop(func(n int) error { lookTwice(n); return nil })
	counted := l.loop(func(n int) error { account(metrics, n); return nil })

	const base, ours = 0, 1
	return l.measure(newTable("metrics by themselves", "goroutines",
		of("ns", ours, nsPerID, whole), of("allocations", ours, allocations, whole),
		of("of ns", base, nsPerID, whole), ratio("share", ours, base, nsPerID, fourPlaces)),
		row{"a scrape a second", 1, []way{second, scrape}},
		row{"a request: the clock, twice", 1, []way{request, clock}},
		row{"a request: the clock, twice", 2, []way{request, clock}},
		row{"a request: the clock, twice, and counting", 1, []way{request, counted}},
		row{"a request: the clock, twice, and counting", 2, []way{request, counted}},
	)
}

// scrape asks for the metrics as a Prometheus does.
func scrape(face *gateway.Server) error {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	face.ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Body.Len() == 0 {
		return fmt.Errorf("a scrape of %d bytes, with status %d", w.Body.Len(), w.Code)
	}
	return nil
}

// lookTwice looks at the clock as often as it takes to know how long requests take.
func lookTwice(n int) (total time.Duration) {
	for range n {
		total += time.Since(time.Now())
	}
	return total
}

// account does with n requests what a generator does for its metrics.
func account(metrics *gateway.Metrics, n int) {
	for range n {
		begun := time.Now()
		metrics.Answered(generator.Answer{Kind: generator.SegmentKind, Transport: generator.NATS, IDs: 1, Took: time.Since(begun)})
	}
}

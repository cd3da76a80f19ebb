package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/gateway"
	"github.com/leafbus/leafbus/bus/generator"
)

// What metrics cost is far less than what one measurement differs from the next by.
// So these are so much shorter than others, and there are so many more: most of what
// disturbs the machine then lasts for all of a round.
const shorter = 10

// metricsCost compares requests to a generator that has metrics with those to one that
// has none, each on a site of its own. A second one that has none shows how far
// from 1 a ratio is by chance. Nobody scrapes here: see metricsAlone.
func metricsCost(ctx context.Context, p plan) (t *table, err error) {
	p.rounds, p.duration = p.rounds*shorter, p.duration/shorter
	tag := allocator.Tag{Name: "bench", MaxID: 1, Step: allocator.DefaultStep}
	without, stop, err := openWith(tag)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	with, _, stopFaced, err := openFaced(tag)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopFaced()) }()
	second, stopSecond, err := openWith(tag)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopSecond()) }()

	t = newTable("metrics, over NATS, 1 ID a request", "callers", "requests/s", "without", "ratio", "a second without", "ratio",
		"p50 µs", "without", "p99 µs", "without")
	for _, b := range []batch{
		{1, tag, []int{16, 64}},
		{1, allocator.Tag{}, []int{16, 64}},
	} {
		for _, callers := range b.callers {
			results, err := p.compareSites(ctx, callers, b, without, with, second)
			if err != nil {
				return nil, err
			}
			base, ours, control := results[0], results[1], results[2]
			t.add(b.kind(), strconv.Itoa(callers),
				whole(median(ours, perSecond)), whole(median(base, perSecond)), fourPlaces(ratio(ours, base, perSecond)),
				whole(median(control, perSecond)), fourPlaces(ratio(control, base, perSecond)),
				whole(median(ours, p50)), whole(median(base, p50)),
				whole(median(ours, p99)), whole(median(base, p99)))
		}
	}
	return t, nil
}

// compareSites compares the same requests to the generators of several sites, over
// a connection to each.
func (p plan) compareSites(ctx context.Context, callers int, b batch, sites ...*site) ([][]sample, error) {
	calls := make([]func(int) error, len(sites))
	for i, s := range sites {
		client, err := s.dial()
		if err != nil {
			return nil, err
		}
		defer client.Close()
		calls[i] = func(int) error { return ask(client, b.subject(), strconv.AppendInt(nil, b.count, 10)) }
	}
	return p.compare(ctx, callers, calls...)
}

// metricsAlone measures what metrics add to a request by itself, beside the time from
// one request over NATS to the next, and a scrape beside a second: no Prometheus
// scrapes more often. On two goroutines that do nothing else, counting takes longer
// than in a generator, where they seldom count at the same time.
func metricsAlone(ctx context.Context, p plan) (t *table, err error) {
	const callers = 64
	s, face, stop, err := openFaced(allocator.Tag{Name: "bench", MaxID: 1, Step: allocator.DefaultStep})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	client, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	metrics := gateway.NewMetrics()

	rounds := max(1, p.rounds/2) // a measurement of these takes twice as long as others
	results, err := inTurns(ctx, rounds, []func() (testing.BenchmarkResult, error){
		p.benchmark(callers, func(n int) error {
			return repeat(n, func() error { return ask(client, bus.SubjectSnowflake, []byte("1")) })
		}),
		p.benchmark(1, func(n int) error { return repeat(n, func() error { return scrape(face) }) }),
		p.benchmark(1, func(n int) error { lookTwice(n); return nil }),
		p.benchmark(2, func(n int) error { lookTwice(n); return nil }),
		p.benchmark(1, func(n int) error { account(metrics, n); return nil }),
		p.benchmark(2, func(n int) error { account(metrics, n); return nil }),
	})
	if err != nil {
		return nil, err
	}
	request := median(results[0], nsPerOp)
	t = newTable("metrics by themselves", "goroutines", "ns", "allocations", "of ns", "share")
	for i, row := range []struct {
		name       string
		goroutines int
		of         float64
	}{
		{"a scrape a second", 1, float64(time.Second)},
		{"a request: the clock, twice", 1, request},
		{"a request: the clock, twice", 2, request},
		{"a request: the clock, twice, and counting", 1, request},
		{"a request: the clock, twice, and counting", 2, request},
	} {
		ours := results[i+1]
		ns := median(ours, nsPerOp)
		t.add(row.name, strconv.Itoa(row.goroutines), whole(ns), whole(median(ours, allocsPerOp)), whole(row.of), fourPlaces(ns/row.of))
	}
	return t, nil
}

func repeat(n int, f func() error) error {
	for range n {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
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

// openFaced opens a site with a generator that has this tag and metrics, and with its
// HTTP face, which does not run. stop drains the generator, and closes the site.
func openFaced(tag allocator.Tag) (s *site, face *gateway.Server, stop func() error, err error) {
	if s, err = openSite(); err != nil {
		return nil, nil, nil, err
	}
	face, drain, err := s.faced(tag)
	if err != nil {
		return nil, nil, nil, errors.Join(err, s.close())
	}
	return s, face, func() error { return errors.Join(drain(), s.close()) }, nil
}

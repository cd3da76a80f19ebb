package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/tests/proxy"
)

const (
	// A measurement of a database that is late is this much longer than others,
	// and there are fewer.
	muchLonger, fewer = 10, 4
	// pace is how long after one request of a caller its next is due.
	pace = 4 * time.Millisecond
)

// late compares requests while the database's answers come late with requests
// while they do not. A segment lasts half a measurement, and an answer takes
// half a segment: the next one, which is loaded when a tenth is used, comes in time.
func late(ctx context.Context, p plan) (t *table, err error) {
	d, err := openDatabase()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	between, err := proxy.Start(d.server.Addr())
	if err != nil {
		return nil, err
	}
	defer between.Close()
	opened, err := openStore(ctx, strings.Replace(d.dsn, d.server.Addr(), between.Addr(), 1))
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	s, err := openSite()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	takes := muchLonger * p.duration
	delay := takes / 4
	tag := allocator.Tag{Name: "bench", MaxID: 1, Step: max(1, int64(crowd*takes/2/pace))}
	store := &counting{Store: opened}
	store.counts.Store(&refillCounts{})
	stop, err := s.generate(func(c *generator.Config) {
		c.Store, c.Open, c.StoreErr = store, store.Open, store.Err
		c.Tags, c.MaxStep = []allocator.Tag{tag}, tag.Step // not adapted
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	client, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer client.Close()

	measure := func(delay time.Duration, counts *refillCounts) func() (sample, error) {
		return func() (sample, error) {
			between.Delay(delay)
			defer between.Delay(0)
			store.counts.Store(counts)
			return load(crowd, takes, pace, func(int) error { return ask(client, bus.SubjectSegment+"."+tag.Name, []byte("1")) })
		}
	}
	if _, err := measure(0, &refillCounts{})(); err != nil { // to warm up
		return nil, err
	}
	var onTime, delayed refillCounts
	results, err := inTurns(ctx, max(1, p.rounds/fewer), []func() (sample, error){measure(0, &onTime), measure(delay, &delayed)})
	if err != nil {
		return nil, err
	}
	base, ours := results[0], results[1]
	t = newTable("over NATS, from MySQL", "callers", "requests/s", "on time", "refills", "on time", "ms each", "on time",
		"p50 µs", "on time", "p99 µs", "on time", "p99.9 µs", "on time", "ratio")
	t.add("answers late by "+delay.String(), strconv.Itoa(crowd),
		whole(median(ours, perSecond)), whole(median(base, perSecond)),
		whole(float64(delayed.refills.Load())), whole(float64(onTime.refills.Load())), tenths(delayed.ms()), tenths(onTime.ms()),
		whole(median(ours, p50)), whole(median(base, p50)),
		whole(median(ours, p99)), whole(median(base, p99)),
		whole(median(ours, p999)), whole(median(base, p999)), hundredths(ratio(ours, base, p999)))
	return t, nil
}

// counting counts the refills from a store.
type counting struct {
	*schema.Store
	counts atomic.Pointer[refillCounts] // the present measurement's
}

type refillCounts struct{ refills, took atomic.Int64 }

// Reserve implements [allocator.Store].
func (c *counting) Reserve(ctx context.Context, tag string, n int64) (allocator.Grant, error) {
	counts, begin := c.counts.Load(), time.Now()
	g, err := c.Store.Reserve(ctx, tag, n)
	counts.took.Add(int64(time.Since(begin)))
	counts.refills.Add(1)
	return g, err
}

// ms is how long a refill took.
func (c *refillCounts) ms() float64 {
	return time.Duration(c.took.Load()).Seconds() * 1e3 / float64(c.refills.Load())
}

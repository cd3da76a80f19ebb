package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// counters measures many strict tags, a counter for each customer: requests rarely share a write, so the disk's syncs
// are the bound. A write and a sync in the same folder, of a record of the same size, are measured beside it: one after
// the other as JetStream syncs those of a stream, and in as many files at a time as there are callers.
func counters(l *lab) *table {
	s, claims := l.site(), new(claimCounts)
	s.generate(nil, claims.observe)
	nc := s.dial()
	records := s.records(s.state())
	size := max(1, l.tags/10)
	var tags []string
	var turn atomic.Int64

	ask := func(i int) error { return ask(nc, segment(strictNamed(tags[i])), []byte("1")) }
	first := claims.counted(func(callers int) (sample, error) {
		tags = names(size)
		for i := range tags {
			tags[i] += fmt.Sprint(".", time.Now().UnixNano())
		}
		err := each(l.ctx, size, callers, func(i int) error { _, err := records.Swap(l.ctx, strictNamed(tags[i]), 0); return err })
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		err = each(l.ctx, size, callers, ask)
		return sample{made: float64(size), perSecond: float64(size) / time.Since(begin).Seconds()}, err
	})
	again := claims.counted(l.calls(func(int) error { return ask(int(turn.Add(1) % int64(size))) }))

	const ours, one, many = 0, 1, 2
	ways := []way{first, again, l.syncs(s.dir, 1), l.syncs(s.dir, tagsAtOnce)}
	found := l.inTurns(l.rounds, tagsAtOnce, ways...)
	t := newTable(whole(float64(size))+" strict tags", "callers",
		of("requests/s", ours, perSecond, whole), of("writes/s", ours, writesPerSecond, whole),
		of("syncs/s, one after the other", one, perSecond, whole), ratio("writes a sync", ours, one, writesPerSecond, hundredths),
		of("syncs/s, many files", many, perSecond, whole),
		of("p50 µs", ours, p50, thousands), of("p99 µs", ours, p99, thousands))
	t.add("first use of each", tagsAtOnce, found[0], found[2], found[3])
	t.add("after that", tagsAtOnce, found[1], found[2], found[3])
	return t
}

// syncs is a way that writes records and syncs each, in so many files at a time.
func (l *lab) syncs(dir string, files int) way {
	open := make([]*os.File, files)
	for i := range open {
		open[i] = must(os.CreateTemp(dir, "syncs-"))
		l.atEnd(open[i].Close)
	}
	record := make([]byte, recordSize)
	return func(int) (sample, error) {
		s, err := l.load(files, 0, func(i int) error {
			if _, err := open[i].Write(record); err != nil {
				return err
			}
			return open[i].Sync()
		})
		s[writesPerSecond] = s[perSecond]
		return s, err
	}
}

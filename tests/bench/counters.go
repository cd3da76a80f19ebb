package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/bus/kvstore"
)

// counters measures many strict tags, a counter for each customer: requests rarely share a write, so the disk's syncs are the bound. A
// write and a sync in the same folder, of a record of the same size, are measured beside it: one after the other as JetStream syncs
// those of a stream, and in as many files at a time as there are callers.
func counters(l *lab) *table {
	s, claims := l.site(), new(claimCounts)
	s.generate(nil, claims.observe)
	nc := s.dial()
	store := kvstore.New(s.state())
	check(store.Open(l.ctx))
	size := max(1, l.tags/10)
	var tags []string
	var turn atomic.Int64

	// each calls do for each tag, from many callers.
	each := func(callers int, do func(tag string) error) (sample, error) {
		failed := make([]error, callers)
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for n := i; n < len(tags) && failed[i] == nil; n += callers {
					failed[i] = do(tags[n])
				}
			})
		}
		wg.Wait()
		n := float64(len(tags))
		return sample{made: n, perSecond: n / time.Since(begin).Seconds()}, errors.Join(failed...)
	}
	ask := func(tag string) error { return ask(nc, segment(strictNamed(tag)), []byte("1")) }
	first := claims.counted(func(callers int) (sample, error) {
		tags = names(size)
		for i := range tags {
			tags[i] += fmt.Sprint(".", time.Now().UnixNano())
		}
		_, err := each(callers, func(tag string) error { _, err := store.Create(l.ctx, strictNamed(tag)); return err })
		if err != nil {
			return nil, err
		}
		return each(callers, ask)
	})
	again := claims.counted(l.calls(func(int) error { return ask(tags[turn.Add(1)%int64(len(tags))]) }))

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

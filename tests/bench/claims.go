package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
)

const (
	lostPercent  figure = "ranges lost, %"
	tagsASecond  figure = "tags a second"
	tagsAtOnce          = 64     // first uses at a time: as many as an allocator refills
	tagsFirstUse        = 10_000 // of a measurement
)

// claimed returns a handle on the tags whose ranges are claimed in the ledger.
func (s *site) claimed(store allocator.Store) allocator.Store {
	return allocator.WithLedger(store, must(kvstore.OpenLedger(s.ctx, s.state())), allocator.NewMarks(), "")
}

// claims compares a reservation in MySQL that is claimed in the ledger with one that is not.
func claims(l *lab) *table {
	d := l.database()
	tags := names(crowd)
	d.fill(d.dsn, tags)
	store := d.store(d.dsn)
	reserve := func(s allocator.Store) way {
		return l.calls(func(i int) error { _, err := s.Reserve(l.ctx, tags[i], 1, 1); return err })
	}
	ways := []way{reserve(l.site().claimed(store)), reserve(store)}
	const ours, base = 0, 1
	return l.measure(newTable("refill from MySQL, claimed in the ledger", "callers",
		of("per second", ours, perSecond, whole), of("unclaimed", base, perSecond, whole),
		of("p50 µs", ours, p50, thousands), of("unclaimed", base, p50, thousands), ratio("ratio", ours, base, p50, hundredths)),
		row{"Reserve, tags: 1", 1, ways}, row{"Reserve, tags: 16", crowd, ways})
}

// lostClaims measures how many ranges are lost because claims of one tag overtake each other.
func lostClaims(l *lab) *table {
	d, s := l.database(), l.site()
	d.fill(d.dsn, nil)
	store := d.store(d.dsn)
	t := newTable("one tag, refilled without a pause", "generators",
		of("refills per second", 0, perSecond, whole), of("lost ranges, %", 0, lostPercent, tenths))
	for _, generators := range []int{2, 3, 8} {
		var stores []allocator.Store
		for range generators {
			stores = append(stores, s.claimed(store))
		}
		tag := tagNamed(fmt.Sprint("one.", generators), allocator.DefaultStep)
		must(stores[0].Create(l.ctx, tag))
		l.measure(t, row{"Reserve, tags: 1", generators, []way{l.lost(stores, tag.Name)}})
	}
	return t
}

// firstUses compares the first use of many tags in MySQL with and without claims.
func firstUses(l *lab) *table {
	d := l.database()
	store := d.store(d.dsn)
	const ours, base = 0, 1
	t := newTable("first use of "+whole(tagsFirstUse)+" tags in MySQL", "callers",
		of("tags/s", ours, tagsASecond, whole), of("unclaimed", base, tagsASecond, whole), ratio("ratio", ours, base, tagsASecond, hundredths))
	t.add("one ID of each", tagsAtOnce, l.inTurns(l.rounds, tagsAtOnce, d.firstUse(l.site().claimed(store)), d.firstUse(store))...)
	return t
}

// lost is a way whose callers reserve ranges of one tag, each from a store of its own.
func (l *lab) lost(stores []allocator.Store, tag string) way {
	return func(callers int) (sample, error) {
		var kept, lost atomic.Int64
		s, err := l.load(callers, 0, func(i int) error {
			_, err := stores[i].Reserve(l.ctx, tag, 1, 1)
			switch {
			case err == nil:
				kept.Add(1)
			case errors.Is(err, allocator.ErrConflict):
				lost.Add(1)
				return nil
			}
			return err
		})
		s[lostPercent] = 100 * float64(lost.Load()) / float64(kept.Load()+lost.Load())
		return s, err
	}
}

// firstUse is a way that takes one ID of many tags which were never used.
func (d *database) firstUse(store allocator.Store) way {
	return func(callers int) (sample, error) {
		list, round := names(tagsFirstUse), time.Now().UnixNano()
		for i := range list {
			list[i] += fmt.Sprint(".", round)
		}
		d.fill(d.dsn, list)
		alloc := allocator.New(allocator.Config{Store: store})
		defer d.background(alloc.Run)()
		begin := time.Now()
		err := each(d.ctx, len(list), callers, func(i int) error { _, err := alloc.Take(d.ctx, list[i], 1); return err })
		return sample{tagsASecond: float64(len(list)) / time.Since(begin).Seconds()}, err
	}
}

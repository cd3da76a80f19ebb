package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

const (
	lostPercent  figure = "ranges lost, %"
	tagsASecond  figure = "tags a second"
	tagsAtOnce          = 64     // first uses at a time: as many as an allocator refills
	tagsFirstUse        = 10_000 // of a measurement
)

// claims compares refills from MySQL whose ranges are claimed in JetStream with refills whose ranges are claimed in
// memory.
func claims(l *lab) *table {
	d := l.database()
	tags := names(crowd)
	d.fill(d.dsn, tags)
	refilled := func(records allocator.Records) way {
		d.record(records, tags)
		alloc := allocator.New(allocator.Config{Records: records, Numbers: d.numbers(d.dsn), MaxStep: allocator.DefaultStep})
		l.background(alloc.Run)
		return l.calls(func(i int) error { _, err := alloc.Take(l.ctx, tags[i], allocator.DefaultStep); return err })
	}
	s := l.site()
	ways := []way{refilled(s.records(s.state())), refilled(inMemory())}
	const ours, base = 0, 1
	return l.measure(newTable("refill from MySQL, claimed in JetStream", "callers",
		of("per second", ours, perSecond, whole), of("in memory", base, perSecond, whole),
		of("p50 µs", ours, p50, thousands), of("in memory", base, p50, thousands), ratio("ratio", ours, base, p50, hundredths)),
		row{"a step, tags: 1", 1, ways}, row{"a step, tags: 16", crowd, ways})
}

// record makes the records of tags.
func (d *database) record(records allocator.Records, tags []string) {
	check(each(d.ctx, len(tags), tagsAtOnce, func(i int) error {
		_, err := records.Swap(d.ctx, tagNamed(tags[i], allocator.DefaultStep), 0)
		return err
	}))
}

// lostClaims measures how many ranges are lost because claims of one tag overtake each other. The generators do not
// hear each other but by the watch.
func lostClaims(l *lab) *table {
	d, s := l.database(), l.site()
	t := newTable("one tag, refilled without a pause", "generators",
		of("refills per second", 0, perSecond, whole), of("lost ranges, %", 0, lostPercent, tenths))
	for _, generators := range []int{2, 3, 8} {
		tag := fmt.Sprint("one.", generators)
		d.fill(d.dsn, []string{tag})
		d.record(s.records(s.state()), []string{tag})
		all, numbers := make([]*allocator.Allocator, generators), make([]*counting, generators)
		var kept atomic.Int64
		for i := range all {
			numbers[i] = &counting{Database: d.numbers(d.dsn)}
			all[i] = allocator.New(allocator.Config{
				Records: s.records(s.state()), Numbers: numbers[i], MaxStep: allocator.DefaultStep,
				Notify: func(e allocator.Event) {
					if _, ok := e.(allocator.Refilled); ok {
						kept.Add(1)
					}
				},
			})
			l.background(all[i].Run)
		}
		taken := func() (n int64) {
			for _, c := range numbers {
				n += c.refills.Load()
			}
			return n
		}
		l.measure(t, row{"a step, tags: 1", generators, []way{func(callers int) (sample, error) {
			wasKept, wasTaken := kept.Load(), taken()
			found, err := l.load(callers, 0, func(i int) error { _, err := all[i].Take(l.ctx, tag, allocator.DefaultStep); return err })
			found[lostPercent] = 100 * (1 - float64(kept.Load()-wasKept)/float64(taken()-wasTaken))
			return found, err
		}}})
	}
	return t
}

// firstUses compares the first use of many tags in MySQL whose records are in JetStream with that of tags whose records
// are in memory.
func firstUses(l *lab) *table {
	d, s := l.database(), l.site()
	const ours, base = 0, 1
	t := newTable("first use of "+whole(tagsFirstUse)+" tags in MySQL", "callers",
		of("tags/s", ours, tagsASecond, whole), of("records in memory", base, tagsASecond, whole), ratio("ratio", ours, base, tagsASecond, hundredths))
	t.add("one ID of each", tagsAtOnce, l.inTurns(l.rounds, tagsAtOnce, d.firstUse(s.records(s.state())), d.firstUse(inMemory()))...)
	return t
}

// firstUse is a way that takes one ID of many tags which were never used.
func (d *database) firstUse(records allocator.Records) way {
	return func(callers int) (sample, error) {
		list, round := names(tagsFirstUse), time.Now().UnixNano()
		for i := range list {
			list[i] += fmt.Sprint(".", round)
		}
		d.fill(d.dsn, list)
		d.record(records, list)
		alloc := allocator.New(allocator.Config{Records: records, Numbers: d.numbers(d.dsn)})
		defer d.background(alloc.Run)()
		begin := time.Now()
		err := each(d.ctx, len(list), callers, func(i int) error { _, err := alloc.Take(d.ctx, list[i], 1); return err })
		return sample{tagsASecond: float64(len(list)) / time.Since(begin).Seconds()}, err
	}
}

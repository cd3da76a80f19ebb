package main

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// background runs something until stop is called, or until the end of the scenario.
func (l *lab) background(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	stop = func() { cancel(); running.Wait() }
	l.atEnd(func() error { stop(); return nil })
	return stop
}

// inMemory are records in memory, with these tags.
func inMemory(tags ...allocator.Tag) *allocatortest.MemoryRecords {
	records := allocatortest.NewMemoryRecords()
	for _, tag := range tags {
		must(records.Swap(context.Background(), tag, 0))
	}
	return records
}

// inProcess compares the allocator, over records in memory, with the addition
// that any counter needs. Times are those of all goroutines together: so long
// after one ID comes the next.
func inProcess(l *lab) *table {
	tag := tagNamed("bench", allocator.DefaultStep)
	alloc := allocator.New(allocator.Config{Records: inMemory(tag)})
	l.background(alloc.Run)

	var counter atomic.Int64
	bare := l.loop(func(n int) error { return add(&counter, n) })
	// As the service takes IDs: from memory, or else it waits.
	request := l.loop(func(n int) error {
		var room [4]allocator.Range
		for range n {
			_, waiter, err := alloc.Request(room[:0], tag.Name, 1)
			if waiter != nil {
				_, err = waiter.Wait(l.ctx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	take := l.loop(repeat(func() error { _, err := alloc.Take(l.ctx, tag.Name, 1); return err }))

	const base, ours = 0, 1
	return l.measure(newTable("in process, one ID", "goroutines",
		of("ns/ID", ours, nsPerID, tenths), of("atomic add's", base, nsPerID, tenths), ratio("ratio", ours, base, nsPerID, tenths),
		of("allocations", ours, allocations, whole)),
		row{"Request, into the caller's memory", 1, []way{bare, request}},
		row{"Take", 1, []way{bare, take}},
		row{"Request, into the caller's memory", 2, []way{bare, request}},
		row{"Take", 2, []way{bare, take}},
	)
}

// snowflakes compares what a generator issues in process with the ceiling of
// the layout, and a generator whose ceiling is kept on disk with one that has no disk.
func snowflakes(l *lab) *table {
	file := must(snowflake.OpenFile(filepath.Join(l.tempDir(), "worker")))
	l.atEnd(file.Close)
	inMemory := l.flakes(snowflake.DefaultLayout(), must(snowflake.NewFile(snowflaketest.NewDisk())))
	onDisk := l.flakes(snowflake.DefaultLayout(), file)
	most := constant(sample{idsPerSecond: float64(snowflake.DefaultLayout().PerUnit()) * 1000})
	ways := func(count int64) []way { return []way{l.issued(inMemory, count), l.issued(onDisk, count), most} }

	const noDisk, ours, ceiling = 0, 1, 2
	return l.measure(newTable("snowflakes in process", "goroutines",
		of("IDs/s", ours, idsPerSecond, whole),
		ratio("of the ceiling", ours, ceiling, idsPerSecond, fourPlaces), of("ceiling", ceiling, idsPerSecond, whole),
		ratio("ratio to no disk", ours, noDisk, idsPerSecond, fourPlaces)),
		row{"IDs a call: 1", 1, ways(1)},
		row{"IDs a call: 1", 2, ways(1)},
		row{"IDs a call: 100", 1, ways(100)},
		row{"IDs a call: 100", 2, ways(100)},
		row{"IDs a call: 100,000", 1, ways(100_000)},
		row{"IDs a call: 100,000", 2, ways(100_000)},
	)
}

// layouts compares what a generator issues with a layout of 53 bits and units of 10 ms with what one issues with the
// default layout. Both have their file on disk. The ceiling is 6,553,600 IDs/s, that of the default 4,096,000.
func layouts(l *lab) *table {
	onDisk := func(layout snowflake.Layout) *snowflake.Generator {
		check(layout.Validate())
		file := must(snowflake.OpenFile(filepath.Join(l.tempDir(), "worker")))
		l.atEnd(file.Close)
		return l.flakes(layout, file)
	}
	const epoch = 1_767_225_600_000 // 2026
	base := onDisk(snowflake.DefaultLayout())
	short := onDisk(snowflake.Layout{Epoch: epoch, TimeBits: 35, WorkerBits: 2, SequenceBits: 16}.In(10 * time.Millisecond))
	ways := func(count int64) []way { return []way{l.issued(base, count), l.issued(short, count)} }

	const byDefault, ours = 0, 1
	return l.measure(newTable("snowflakes in process, 53 bits and 10 ms", "goroutines",
		of("IDs/s", ours, idsPerSecond, whole), of("default layout's", byDefault, idsPerSecond, whole),
		ratio("ratio", ours, byDefault, idsPerSecond, hundredths)),
		row{"IDs a call: 1", 1, ways(1)},
		row{"IDs a call: 1", 2, ways(1)},
		row{"IDs a call: 100", 1, ways(100)},
	)
}

// flakes runs a generator.
func (l *lab) flakes(layout snowflake.Layout, file *snowflake.File) *snowflake.Generator {
	g := snowflake.New(snowflake.Config{
		Layout: layout, Registry: snowflaketest.NewMemory(), File: file, LastWorker: layout.Workers() - 1,
	})
	l.background(func(ctx context.Context) { g.Run(ctx, "bench") })
	return g
}

// issued is a way whose callers take snowflakes. It looks at the clock after at least 1,000 IDs.
func (l *lab) issued(g *snowflake.Generator, count int64) way {
	ids := max(1000, count)
	issue := l.calls(func(int) error {
		for n := int64(0); n < ids; n += count {
			if _, err := g.Take(l.ctx, count); err != nil {
				return err
			}
		}
		return nil
	})
	return func(callers int) (sample, error) {
		s, err := issue(callers)
		s[idsPerSecond] = s[perSecond] * float64(ids)
		return s, err
	}
}

// refills compares a claim in the tag's record with the two calls that it
// cannot do without: a read and a compare-and-set, of a record of the same kind,
// in a bucket of the same server.
func refills(l *lab) *table {
	s, tag := l.site(), tagNamed("bench", allocator.DefaultStep)
	state, records := s.state(), s.records(s.state())
	must(records.Swap(l.ctx, tag, 0))
	record := must(must(state.JS.Stream(l.ctx, "KV_"+bus.BucketTags)).GetLastMsgForSubject(l.ctx, "$KV."+bus.BucketTags+"."+tag.Name))
	kv := must(state.JS.CreateKeyValue(l.ctx, jetstream.KeyValueConfig{Bucket: "BENCH", History: 1, Storage: jetstream.FileStorage}))
	must(kv.Put(l.ctx, tag.Name, record.Data))

	const bare, ours = 0, 1
	return l.measure(newTable("refill from the KV store", "",
		of("per second", ours, perSecond, whole), of("bare get and update", bare, perSecond, whole),
		ratio("ratio", ours, bare, perSecond, hundredths),
		of("p50 µs", ours, p50, thousands), of("bare", bare, p50, thousands),
		of("p99 µs", ours, p99, thousands), of("bare", bare, p99, thousands)),
		row{"Load and Swap", 1, []way{
			l.calls(func(int) error {
				entry, err := kv.Get(l.ctx, tag.Name)
				if err == nil {
					_, err = kv.Update(l.ctx, tag.Name, entry.Value(), entry.Revision())
				}
				return err
			}),
			l.calls(func(int) error {
				s, err := records.Load(l.ctx, tag.Name)
				if err == nil {
					_, err = records.Swap(l.ctx, s.Rise(s.MaxID+tag.Step, 0), s.Revision)
				}
				return err
			}),
		}},
	)
}

package main

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/schema"
)

const (
	firstID figure = "ms to the first ID"
	allRead figure = "ms until all tags were read"
	amount  figure = "what the row's name says"
)

// manyTags compares a start with many tags in the table with one with a single
// tag, the reading of the table with a bare query, and a tag's memory with that
// of an entry in a bare map.
func manyTags(l *lab) *table {
	d := l.database()
	tags := names(l.tags)
	one := must(d.server.Database())
	d.fill(d.dsn, tags)
	d.fill(one, tags[:1])
	starts := func(dsn string, tags []string) way {
		records := inMemory()
		d.record(records, tags)
		return func(int) (sample, error) {
			k, s := d.start(records, dsn, tags)
			k.stop()
			return s, k.numbers.Close()
		}
	}
	samples := l.inTurns(l.rounds, 1, starts(d.dsn, tags), starts(one, tags[:1]), d.readAll)
	many, single, bare := samples[0], samples[1], samples[2]
	idle, used := d.memory(tags)
	entry := bareMemory(tags)

	const ours, base = 0, 1
	columns := func(f figure, format func(float64) string) []column {
		return []column{of("Leafbus", ours, f, format), of("baseline", base, f, format), ratio("ratio", ours, base, f, hundredths)}
	}
	t := newTable(whole(float64(l.tags))+" tags in MySQL", "", columns(firstID, tenths)...)
	t.add("start to the first ID, ms, beside one tag", 1, many, single)
	t.columns = columns(allRead, tenths)
	t.add("start to all tags read, ms, beside a bare SELECT", 1, many, bare)
	t.columns = columns(amount, whole)
	t.add("bytes beyond a name, tag read, beside a bare map's", 1, idle, entry)
	t.add("bytes beyond a name, tag used once, beside a bare map's", 1, used, entry)
	return t
}

// keeper is what a generator has for its tags.
type keeper struct {
	numbers *schema.Database
	alloc   *allocator.Allocator
	stop    func() // ends what runs; the memory stays
}

// start starts as a generator does, which answers as soon as the store is open. It returns
// when all rows were compared with the records.
func (d *database) start(records *allocatortest.MemoryRecords, dsn string, tags []string) (*keeper, sample) {
	begin := time.Now()
	numbers := must(openNumbers(d.ctx, dsn))
	complete, done := context.WithCancel(d.ctx)
	defer done()
	k := &keeper{numbers: numbers, alloc: allocator.New(allocator.Config{Records: records.Open(), Numbers: watched{numbers, done}})}
	k.stop = d.background(k.alloc.Run)
	must(k.alloc.Take(d.ctx, tags[0], 1))
	s := sample{firstID: since(begin)}
	<-complete.Done()
	check(d.ctx.Err())
	s[allRead] = since(begin)
	return k, s
}

// watched says when all rows were read.
type watched struct {
	*schema.Database
	done func()
}

// Rows implements [allocator.Numbers].
func (w watched) Rows(ctx context.Context, f func(allocator.Row)) error {
	defer w.done()
	return w.Database.Rows(ctx, f)
}

// readAll is a way that reads the table.
func (d *database) readAll(int) (sample, error) {
	begin := time.Now()
	rows, err := d.plain.QueryContext(d.ctx, "SELECT biz_tag, max_id, step FROM leaf_alloc")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var tag string
		var maxID, step int64
		if err := rows.Scan(&tag, &maxID, &step); err != nil {
			return nil, err
		}
	}
	return sample{allRead: since(begin)}, rows.Err()
}

// memory is what a tag takes beyond the bytes of its name: one that was read,
// and one of which there is a segment.
func (d *database) memory(tags []string) (idle, used []sample) {
	records := inMemory()
	d.record(records, tags)
	before := heap()
	k, _ := d.start(records, d.dsn, tags)
	defer func() {
		runtime.KeepAlive(k)
		check(k.numbers.Close())
	}()
	idle = perTag(before, tags)

	// Syncing them to disk would take most of the time, and no memory.
	must(d.plain.ExecContext(d.ctx, "SET GLOBAL innodb_flush_log_at_trx_commit = 0"))
	const callers = 64 // as many as the allocator refills at once
	check(each(d.ctx, len(tags), callers, func(i int) error {
		// The service cuts the tag out of the request's subject, which stays.
		subject := bus.SubjectSegment + "." + tags[i]
		_, err := k.alloc.Take(d.ctx, subject[len(bus.SubjectSegment)+1:], 1)
		return err
	}))
	k.stop() // which notes all tags as used, as time does otherwise
	return idle, perTag(before, tags)
}

// bareMemory is the same of a map of the names to a number.
func bareMemory(tags []string) []sample {
	before := heap()
	m := make(map[string]int64)
	for _, tag := range tags {
		m[strings.Clone(tag)] = 1
	}
	defer runtime.KeepAlive(m)
	return perTag(before, tags)
}

// heap is how many bytes are in use.
func heap() float64 {
	for range 3 { // pools keep what they have over two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// perTag is by how much the heap has grown, for each tag beyond its name.
func perTag(before float64, tags []string) []sample {
	return []sample{{amount: (heap()-before)/float64(len(tags)) - float64(len(tags[0]))}}
}

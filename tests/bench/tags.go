package main

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/schema"
)

// manyTags compares a start with many tags in the table with one with a single
// tag, the reading of the table with a bare query, and a tag's memory with that
// of an entry in a bare map.
func manyTags(ctx context.Context, p plan) (t *table, err error) {
	d, err := openDatabase()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	tags := names(p.tags)
	many, one := d.dsn, ""
	if one, err = d.server.Database(); err != nil {
		return nil, err
	}
	for dsn, tags := range map[string][]string{many: tags, one: tags[:1]} {
		if err := fill(ctx, dsn, tags); err != nil {
			return nil, err
		}
	}

	starts := func(dsn string, tags []string) func() (start, error) {
		return func() (start, error) {
			k, err := d.start(ctx, dsn, tags)
			if err != nil {
				return start{}, err
			}
			k.stop()
			return k.start, k.store.Close()
		}
	}
	results, err := inTurns(ctx, max(1, p.rounds/longer), []func() (start, error){
		starts(many, tags), starts(one, tags[:1]), func() (start, error) { return d.readAll(ctx) },
	})
	if err != nil {
		return nil, err
	}
	ours, single, bare := results[0], results[1], results[2]
	t = newTable(whole(float64(len(tags)))+" tags in MySQL", "Leafbus", "baseline", "ratio")
	t.add("start to the first ID, ms, beside one tag", tenths(median(ours, first)), tenths(median(single, first)), hundredths(ratio(ours, single, first)))
	t.add("start to all tags read, ms, beside a bare SELECT", tenths(median(ours, read)), tenths(median(bare, read)), hundredths(ratio(ours, bare, read)))

	idle, used, err := d.memory(ctx, tags)
	if err != nil {
		return nil, err
	}
	entry := bareMemory(tags)
	t.add("bytes beyond a name, tag read, beside a bare map's", whole(idle), whole(entry), hundredths(idle/entry))
	t.add("bytes beyond a name, tag used once, beside a bare map's", whole(used), whole(entry), hundredths(used/entry))
	return t, nil
}

// start is when, after its begin, there were IDs and all tags were read.
type start struct{ first, read float64 } // ms

// The fields of a start.
func first(s start) float64 { return s.first }
func read(s start) float64  { return s.read }

// keeper is what a generator has for its tags.
type keeper struct {
	start
	store *schema.Store
	alloc *allocator.Allocator
	stop  func() // ends what runs; the memory stays
}

// start starts as a generator does, which answers as soon as the store is open.
func (d *database) start(ctx context.Context, dsn string, tags []string) (*keeper, error) {
	begin := time.Now()
	ms := func() float64 { return time.Since(begin).Seconds() * 1e3 }
	store, err := openStore(ctx, dsn)
	if err != nil {
		return nil, err
	}
	complete, done := context.WithCancel(ctx)
	defer done()
	k := &keeper{store: store, alloc: allocator.New(allocator.Config{Store: watched{store, len(tags), done}, Recent: d.dir + "/recent"})}
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { k.alloc.Run(running) })
	k.stop = func() { stop(); wg.Wait() }

	_, err = k.alloc.Take(ctx, tags[0], 1)
	k.first = ms()
	if err == nil {
		<-complete.Done()
		k.read = ms()
		err = ctx.Err()
	}
	if err != nil {
		k.stop()
		return nil, errors.Join(err, store.Close())
	}
	return k, nil
}

// watched says when so many tags were told.
type watched struct {
	*schema.Store
	tags int
	done func()
}

// Watch implements [allocator.Store].
func (w watched) Watch(ctx context.Context, f func(allocator.Tag)) error {
	told := 0
	return w.Store.Watch(ctx, func(t allocator.Tag) {
		f(t)
		if told++; told == w.tags {
			w.done()
		}
	})
}

// readAll reads the table.
func (d *database) readAll(ctx context.Context) (s start, err error) {
	begin := time.Now()
	rows, err := d.plain.QueryContext(ctx, "SELECT biz_tag, max_id, step FROM leaf_alloc")
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var tag string
		var maxID, step int64
		if err := rows.Scan(&tag, &maxID, &step); err != nil {
			return s, err
		}
	}
	s.read = time.Since(begin).Seconds() * 1e3
	return s, rows.Err()
}

// memory is what a tag takes beyond the bytes of its name: one that was read,
// and one of which there is a segment.
func (d *database) memory(ctx context.Context, tags []string) (idle, used float64, err error) {
	before := heap()
	k, err := d.start(ctx, d.dsn, tags)
	if err != nil {
		return 0, 0, err
	}
	defer func() { k.stop(); err = errors.Join(err, k.store.Close()) }()
	idle = perTag(before, tags)

	// Syncing them to disk would take most of the time, and no memory.
	if _, err := d.plain.ExecContext(ctx, "SET GLOBAL innodb_flush_log_at_trx_commit = 0"); err != nil {
		return 0, 0, err
	}
	// As many at once as the allocator refills.
	const callers = 64
	failed := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := i; n < len(tags) && failed[i] == nil; n += callers {
				// The service cuts the tag out of the request's subject, which stays.
				subject := bus.SubjectSegment + "." + tags[n]
				_, failed[i] = k.alloc.Take(ctx, subject[len(bus.SubjectSegment)+1:], 1)
			}
		})
	}
	wg.Wait()
	k.stop() // which notes all tags as used, as time does otherwise
	return idle, perTag(before, tags), errors.Join(failed...)
}

// bareMemory is the same of a map of the names to a number.
func bareMemory(tags []string) float64 {
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
func perTag(before float64, tags []string) float64 {
	return (heap()-before)/float64(len(tags)) - float64(len(tags[0]))
}

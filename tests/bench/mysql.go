package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/tests/kit"
)

// refillsMySQL compares a range of a row in MySQL with Leaf's, which is a
// transaction of two statements, and with the one statement that it cannot do
// without. All are of the same rows; each caller has a tag of its own.
func refillsMySQL(l *lab) *table {
	d := l.database()
	tags := names(crowd)
	d.fill(d.dsn, tags)
	numbers := d.numbers(d.dsn)
	ways := []way{
		l.calls(func(i int) error { return d.reserveAsLeaf(tags[i]) }),
		l.calls(func(i int) error { return d.reserveBare(tags[i]) }),
		l.calls(func(i int) error {
			_, _, err := numbers.Advance(l.ctx, tags[i], 1, allocator.DefaultStep, 1)
			return err
		}),
	}

	const leaf, bare, ours = 0, 1, 2
	return l.measure(newTable("refill from MySQL", "callers",
		of("per second", ours, perSecond, whole), of("Leaf's", leaf, perSecond, whole), ratio("ratio", ours, leaf, perSecond, hundredths),
		of("bare UPDATE's", bare, perSecond, whole), ratio("ratio", ours, bare, perSecond, hundredths),
		of("p50 µs", ours, p50, thousands), of("Leaf's", leaf, p50, thousands), of("bare", bare, p50, thousands),
		of("p99 µs", ours, p99, thousands), of("Leaf's", leaf, p99, thousands), of("bare", bare, p99, thousands)),
		row{"Advance, tags: 1", 1, ways},
		row{"Advance, tags: 16", crowd, ways},
	)
}

// reserveAsLeaf reserves as Leaf does.
func (d *database) reserveAsLeaf(tag string) error {
	tx, err := d.plain.BeginTx(d.ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing, once it is committed
	if _, err := tx.ExecContext(d.ctx, "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = ?", tag); err != nil {
		return err
	}
	var name string
	var maxID, step int64
	err = tx.QueryRowContext(d.ctx, "SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = ?", tag).Scan(&name, &maxID, &step)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// reserveBare moves max_id and learns where it is.
func (d *database) reserveBare(tag string) error {
	result, err := d.plain.ExecContext(d.ctx, "UPDATE leaf_alloc SET max_id = LAST_INSERT_ID(max_id + ?) WHERE biz_tag = ?",
		allocator.DefaultStep, tag)
	if err == nil {
		_, err = result.LastInsertId()
	}
	return err
}

const (
	refillCount figure = "refills"
	msPerRefill figure = "ms per refill"
)

// pace is how long after one request of a caller its next is due.
const pace = 4 * time.Millisecond

// late compares requests while the database's answers come late with requests
// while they do not. A segment lasts half a measurement, and an answer takes
// half a segment: the next one, which is loaded when a tenth is used, comes in time.
func late(l *lab) *table {
	d := l.database()
	between := must(kit.StartLink(d.server.Addr()))
	l.atEnd(func() error { between.Close(); return nil })
	numbers := &counting{Database: d.numbers(strings.Replace(d.dsn, d.server.Addr(), between.Addr(), 1))}
	delay := l.duration / 4
	tag := tagNamed("bench", max(1, int64(crowd*l.duration/2/pace)))
	s := l.site()
	s.generate([]allocator.Tag{tag}, func(c *generator.Config) {
		c.Numbers = numbers
		c.MaxStep = tag.Step // not adapted
	})
	nc := s.dial()

	delayed := func(delay time.Duration) way {
		return func(callers int) (sample, error) {
			between.Delay(delay)
			defer between.Delay(0)
			refills, took := numbers.refills.Load(), numbers.took.Load()
			rate := float64(callers) / pace.Seconds()
			s, err := l.load(callers, rate, func(int) error { return ask(nc, segment(tag), []byte("1")) })
			s[refillCount] = float64(numbers.refills.Load() - refills)
			s[msPerRefill] = time.Duration(numbers.took.Load()-took).Seconds() * 1e3 / s[refillCount]
			return s, err
		}
	}

	const onTime, tardy = 0, 1
	return l.measure(newTable("over NATS, from MySQL", "callers",
		of("requests/s", tardy, perSecond, whole), of("on time", onTime, perSecond, whole),
		sumOf("refills", tardy, refillCount, whole), sumOf("on time", onTime, refillCount, whole),
		of("ms each", tardy, msPerRefill, tenths), of("on time", onTime, msPerRefill, tenths),
		of("p50 µs", tardy, p50, thousands), of("on time", onTime, p50, thousands),
		of("p99 µs", tardy, p99, thousands), of("on time", onTime, p99, thousands),
		of("p99.9 µs", tardy, p999, thousands), of("on time", onTime, p999, thousands),
		ratio("ratio", tardy, onTime, p999, hundredths)),
		row{"answers late by " + delay.String(), crowd, []way{delayed(0), delayed(delay)}},
	)
}

// counting counts the refills from a database, and how long they take.
type counting struct {
	*schema.Database
	refills, took atomic.Int64
}

// Advance implements [allocator.Numbers].
func (c *counting) Advance(ctx context.Context, tag string, n, step, from int64) (allocator.Range, int64, error) {
	begin := time.Now()
	r, now, err := c.Database.Advance(ctx, tag, n, step, from)
	c.took.Add(int64(time.Since(begin)))
	c.refills.Add(1)
	return r, now, err
}

// perRequest is how many IDs are asked for at a time where it is writes that
// are counted.
const perRequest = 1000

const (
	idsUsed          figure = "IDs"
	writeCount       figure = "writes"
	writesPerMillion figure = "writes per million IDs"
)

// writes counts what the database writes per million IDs, beside a step that
// stays at 1,000. It is steady when the step is as long as it gets: the load is
// the process's most, at which any step is used up within the 15 minutes that
// keep it from getting shorter.
func writes(l *lab) *table {
	const fixed, long, most = allocator.DefaultStep, 1_000_000, allocator.DefaultMaxStep
	const base, ours = 0, 1
	d := l.database()
	segments := int64(10 * l.rounds)
	thousand := []sample{d.written(usage{fixed, fixed, fixed, segments * fixed})}
	t := newTable("writes to MySQL", "",
		of("IDs", ours, idsUsed, whole), of("writes", ours, writeCount, whole),
		of("per million IDs", ours, writesPerMillion, hundredths), of("step 1,000's", base, writesPerMillion, hundredths),
		ratio("times fewer", base, ours, writesPerMillion, whole))
	for _, r := range []struct {
		name string
		usage
	}{
		{"step 1,000,000, fixed", usage{long, long, long, segments * long}},
		{"step 1,000, adapted: at first", usage{fixed, most, 0, long}},
		{"step 1,000, adapted: steady", usage{fixed, most, most, segments * most}},
	} {
		t.add(r.name, 1, thousand, []sample{d.written(r.usage)})
	}
	return t
}

// usage is that of a tag.
type usage struct {
	step, maxStep int64
	from          int64 // counted when the step is that long
	ids           int64 // that are counted
}

// written counts the database's writes for these IDs.
func (d *database) written(u usage) sample {
	tag := tagNamed(fmt.Sprintf("bench.%d.%d", u.step, u.from), u.step)
	alloc := allocator.New(allocator.Config{Records: inMemory(tag), Numbers: d.numbers(d.dsn), MaxStep: u.maxStep})
	check(d.numbers(d.dsn).Add(d.ctx, allocator.Row{Name: tag.Name, MaxID: 1, Step: tag.Step}))
	defer d.background(alloc.Run)()
	use := func(ids int64) {
		for ; ids > 0; ids -= perRequest {
			must(alloc.Take(d.ctx, tag.Name, perRequest))
		}
	}

	for step := int64(0); step < u.from; step = alloc.Busiest(1)[0].Step {
		use(perRequest)
	}
	before := d.updates()
	use(u.ids)
	written, ids := d.updates()-before, float64(u.ids)
	return sample{idsUsed: ids, writeCount: written, writesPerMillion: written / ids * 1e6}
}

// updates is how many the server has done.
func (d *database) updates() (n float64) {
	var name string
	check(d.plain.QueryRowContext(d.ctx, "SHOW GLOBAL STATUS LIKE 'Com_update'").Scan(&name, &n))
	return n
}

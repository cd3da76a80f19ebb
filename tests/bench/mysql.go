package main

import (
	"context"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// refillsMySQL compares a range of a row in MySQL that is claimed in JetStream with one that is claimed in memory, and
// with Leaf's, which is a transaction of two statements and no claim. Each caller has a tag of its own.
func refillsMySQL(l *lab) *table {
	d := l.database()
	tags := names(crowd)
	d.fill(d.dsn, tags)
	refilled := func(records allocator.Records) way {
		for _, tag := range tags {
			must(records.Swap(l.ctx, tagNamed(tag, allocator.DefaultStep), 0))
		}
		alloc := allocator.New(allocator.Config{
			Records: records, Numbers: d.numbers(d.dsn), MaxStep: allocator.DefaultStep,
		})
		l.serve(func(ctx context.Context) error { alloc.Run(ctx); return nil })
		return l.calls(func(i int) error {
			_, err := alloc.Take(l.ctx, tags[i], allocator.DefaultStep)
			return err
		})
	}
	s := l.site()
	ways := []way{
		l.calls(func(i int) error { return d.reserveAsLeaf(tags[i]) }),
		refilled(allocatortest.NewMemoryRecords()),
		refilled(s.records(s.state())),
	}

	const leaf, unclaimed, ours = 0, 1, 2
	return l.measure(newTable("refill from MySQL, claimed in JetStream", "callers",
		of("per second", ours, perSecond, whole),
		of("Leaf's", leaf, perSecond, whole), ratio("ratio", ours, leaf, perSecond, hundredths),
		of("claimed in memory", unclaimed, perSecond, whole), ratio("ratio", ours, unclaimed, perSecond, hundredths),
		of("p50 µs", ours, p50, thousands), of("Leaf's", leaf, p50, thousands)),
		row{"tags: 1", 1, ways},
		row{"tags: 16", crowd, ways},
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
	row := tx.QueryRowContext(d.ctx, "SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = ?", tag)
	err = row.Scan(&name, &maxID, &step)
	if err != nil {
		return err
	}
	return tx.Commit()
}

package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/leafbus/leafbus/allocator"
)

// refillsMySQL compares a reservation in MySQL with Leaf's, which is a
// transaction of two statements, and with the one statement that it cannot do
// without. All are of the same rows; each caller has a tag of its own.
func refillsMySQL(ctx context.Context, p plan) (t *table, err error) {
	d, err := openDatabase()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	tags := names(crowd)
	if err := fill(ctx, d.dsn, tags); err != nil {
		return nil, err
	}
	store, err := openStore(ctx, d.dsn)
	if err != nil {
		return nil, err
	}
	defer store.Close()

	t = newTable("refill from MySQL", "callers", "per second", "Leaf's", "ratio", "bare UPDATE's", "ratio",
		"p50 µs", "Leaf's", "bare", "p99 µs", "Leaf's", "bare")
	for _, callers := range []int{1, crowd} {
		results, err := p.compare(ctx, callers,
			func(i int) error { return d.leaf(ctx, tags[i]) },
			func(i int) error { return d.bare(ctx, tags[i]) },
			func(i int) error {
				_, err := store.Reserve(ctx, tags[i], 1)
				return err
			})
		if err != nil {
			return nil, err
		}
		leaf, bare, ours := results[0], results[1], results[2]
		t.add("Reserve, tags: "+strconv.Itoa(callers), strconv.Itoa(callers),
			whole(median(ours, perSecond)), whole(median(leaf, perSecond)), hundredths(ratio(ours, leaf, perSecond)),
			whole(median(bare, perSecond)), hundredths(ratio(ours, bare, perSecond)),
			whole(median(ours, p50)), whole(median(leaf, p50)), whole(median(bare, p50)),
			whole(median(ours, p99)), whole(median(leaf, p99)), whole(median(bare, p99)))
	}
	return t, nil
}

// leaf reserves as Leaf does.
func (d *database) leaf(ctx context.Context, tag string) error {
	tx, err := d.plain.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing, once it is committed
	if _, err := tx.ExecContext(ctx, "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = ?", tag); err != nil {
		return err
	}
	var name string
	var maxID, step int64
	err = tx.QueryRowContext(ctx, "SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = ?", tag).Scan(&name, &maxID, &step)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// bare moves max_id and learns where it is.
func (d *database) bare(ctx context.Context, tag string) error {
	result, err := d.plain.ExecContext(ctx, "UPDATE leaf_alloc SET max_id = LAST_INSERT_ID(max_id + ?) WHERE biz_tag = ?",
		allocator.DefaultStep, tag)
	if err != nil {
		return err
	}
	_, err = result.LastInsertId()
	return err
}

package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/tests/kit"
)

// crowd is how many callers there are where there are many: as many as the database has connections.
const crowd = 16

// refillsMySQL compares a range of a row in MySQL that is claimed in JetStream with one that is claimed in memory, and
// with Leaf's, which is a transaction of two statements and no claim. Each caller has a tag of its own.
func refillsMySQL(l *lab) *table {
	server := must(kit.StartMariaDB(l.tempDir())) // it syncs each commit to disk
	l.atEnd(server.Close)
	dsn := must(server.Database())
	numbers := must(schema.New(schema.Config{DSN: dsn, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}))
	l.atEnd(numbers.Close)
	check(numbers.Open(l.ctx))                                      // it creates the tables
	plain := must(sql.Open("mysql", dsn+"?interpolateParams=true")) // a statement is one round trip, as Leaf's are
	l.atEnd(plain.Close)
	plain.SetMaxIdleConns(crowd)
	tags := make([]string, crowd)
	for i := range tags {
		tags[i] = fmt.Sprintf("bench.%06d", i)
		must(plain.ExecContext(l.ctx, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (?, 1, ?)", tags[i],
			allocator.DefaultStep))
	}
	refilled := func(records allocator.Records) way {
		for _, tag := range tags {
			must(records.Swap(l.ctx, tagNamed(tag, allocator.DefaultStep), 0))
		}
		alloc := allocator.New(allocator.Config{Records: records, Numbers: numbers, MaxStep: allocator.DefaultStep})
		l.serve(func(ctx context.Context) error { alloc.Run(ctx); return nil })
		return l.calls(func(i int) error {
			_, err := alloc.Take(l.ctx, tags[i], allocator.DefaultStep)
			return err
		})
	}
	s := l.site()
	leaf := l.calls(func(i int) error { return reserveAsLeaf(l.ctx, plain, tags[i]) })
	unclaimed, ours := refilled(allocatortest.NewMemoryRecords()), refilled(s.records(s.state()))
	return l.measure("refill from MySQL, claimed in JetStream",
		row{"tags: 1, beside Leaf's", 1, leaf, ours},
		row{"tags: 1, beside claims in memory", 1, unclaimed, ours},
		row{"tags: 16, beside Leaf's", crowd, leaf, ours},
		row{"tags: 16, beside claims in memory", crowd, unclaimed, ours},
	)
}

// reserveAsLeaf reserves as Leaf does.
func reserveAsLeaf(ctx context.Context, db *sql.DB, tag string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing, once it is committed
	if _, err := tx.ExecContext(ctx, "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = ?", tag); err != nil {
		return err
	}
	var name string
	var maxID, step int64
	row := tx.QueryRowContext(ctx, "SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = ?", tag)
	err = row.Scan(&name, &maxID, &step)
	if err != nil {
		return err
	}
	return tx.Commit()
}

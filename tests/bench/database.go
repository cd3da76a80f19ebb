package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/tests/kit"
)

// crowd is how many callers there are where there are many: as many as the
// database has connections.
const crowd = 16

// database is a MariaDB server with an empty database, on a folder of its own.
// It syncs each commit to disk.
type database struct {
	*lab
	dir    string
	server *kit.MariaDB
	dsn    string
	plain  *sql.DB // for baselines: statements are one round trip, as Leaf's are
}

// database starts a server.
func (l *lab) database() *database {
	d := &database{lab: l, dir: l.tempDir()}
	d.server = must(kit.StartMariaDB(d.dir))
	l.atEnd(d.server.Close)
	d.dsn = must(d.server.Database())
	d.plain = must(sql.Open("mysql", d.dsn+"?interpolateParams=true"))
	l.atEnd(d.plain.Close)
	d.plain.SetMaxOpenConns(crowd)
	d.plain.SetMaxIdleConns(crowd)
	return d
}

// openNumbers opens the numbers in a database, which creates the tables that are missing.
func openNumbers(ctx context.Context, dsn string) (*schema.Database, error) {
	n, err := schema.New(schema.Config{DSN: dsn, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	if err := n.Open(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// numbers opens the numbers in a database, until the end of the scenario.
func (d *database) numbers(dsn string) *schema.Database {
	n := must(openNumbers(d.ctx, dsn))
	d.atEnd(n.Close)
	return n
}

// fill creates the tables in an empty database, with these tags.
func (d *database) fill(dsn string, tags []string) {
	const chunk = 10_000 // rows a statement
	check(must(openNumbers(d.ctx, dsn)).Close())
	db := must(sql.Open("mysql", dsn))
	defer db.Close()
	for some := range slices.Chunk(tags, chunk) {
		var rows []string
		for _, tag := range some {
			rows = append(rows, fmt.Sprintf("('%s', 1, %d)", tag, allocator.DefaultStep))
		}
		must(db.ExecContext(d.ctx, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES "+strings.Join(rows, ",")))
	}
}

// names are so many tags.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("bench.%06d", i)
	}
	return list
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// crowd is how many callers there are where there are many: as many as the
// store has connections.
const crowd = 16

// database is a MariaDB server with an empty database, on a folder of its own.
// It syncs each commit to disk.
type database struct {
	dir    string
	server *mariadb.Server
	dsn    string
	plain  *sql.DB // for baselines: statements are one round trip, as Leaf's are
}

func openDatabase() (*database, error) {
	d := &database{}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *database) open() (err error) {
	if d.dir, err = os.MkdirTemp("", "leaf-bench-"); err != nil {
		return err
	}
	if d.server, err = mariadb.Start(d.dir); err != nil {
		return err
	}
	if d.dsn, err = d.server.Database(); err != nil {
		return err
	}
	if d.plain, err = sql.Open("mysql", d.dsn+"?interpolateParams=true"); err != nil {
		return err
	}
	d.plain.SetMaxOpenConns(crowd)
	d.plain.SetMaxIdleConns(crowd)
	return nil
}

// close ends the server and removes the folder.
func (d *database) close() error {
	var err error
	if d.plain != nil {
		err = d.plain.Close()
	}
	if d.server != nil {
		err = errors.Join(err, d.server.Close())
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}

// openStore opens a store, which creates the tables that are missing.
func openStore(ctx context.Context, dsn string) (*schema.Store, error) {
	s, err := schema.New(schema.Config{DSN: dsn, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	if err := s.Open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// fill creates the tables in an empty database, with these tags.
func fill(ctx context.Context, dsn string, tags []string) error {
	const chunk = 10_000 // rows a statement
	store, err := openStore(ctx, dsn)
	if err != nil {
		return err
	}
	defer store.Close()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for some := range slices.Chunk(tags, chunk) {
		var rows []string
		for _, tag := range some {
			rows = append(rows, fmt.Sprintf("('%s', 1, %d)", tag, allocator.DefaultStep))
		}
		if _, err := db.ExecContext(ctx, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES "+strings.Join(rows, ",")); err != nil {
			return err
		}
	}
	return nil
}

// names are so many tags.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("bench.%06d", i)
	}
	return list
}

package tests

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// copyTables makes the tables of a database those of another.
func copyTables(t *testing.T, from, to *sql.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, table := range tablesOf(t, from) {
		execute(t, to, "DROP TABLE IF EXISTS "+table, definition(t, from, table))
		rows, err := from.QueryContext(ctx, "SELECT * FROM "+table)
		must(t, err)
		defer rows.Close()
		columns, err := rows.Columns()
		must(t, err)
		for rows.Next() {
			values, places := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				places[i] = &values[i]
			}
			must(t, rows.Scan(places...))
			_, err := to.ExecContext(ctx, "INSERT INTO "+table+" VALUES (?"+strings.Repeat(", ?", len(columns)-1)+")", values...)
			must(t, err)
		}
		must(t, rows.Err())
	}
}

// The address of the database leads to another server: one that has all that the first one had, and then one that
// has not. Service goes on each time.
func TestFailover(t *testing.T) {
	t.Parallel()
	var servers [2]*mariadb.Server
	var starting sync.WaitGroup
	for i := range servers {
		starting.Go(func() { servers[i] = mariadb.New(t) })
	}
	if starting.Wait(); t.Failed() {
		return
	}
	dsn, err := servers[0].Database()
	must(t, err)
	name := parseDSN(t, dsn).DBName
	execute(t, openDB(t, servers[1].DSN("")), "CREATE DATABASE "+name)
	primary, other := openDB(t, dsn), openDB(t, servers[1].DSN(name))
	r := newRelay(t)
	r.lead(servers[0].Addr())
	server := newNATS(t)
	url := server.ClientURL()
	generators := join(t, url, through(t, dsn, r.addr), []string{"one", "two"}, "--tag", "order:100", "--max-step", "200", "--max-wait", "2s")
	nc := connect(t, url)
	l := startLoad(t, loadConfig{
		tag: "order", callers: 4, maxBatch: 50, patience: patience / 80, mayGiveUp: true,
	}, url, url)
	l.more(500)

	r.close()
	copyTables(t, primary, other)
	r.lead(servers[1].Addr())
	maxID := maxIDOf(t, other, "order")
	testkit.Eventually(t, "IDs from the other server", func() bool { l.check(); return l.highest.Load() > maxID+1000 })
	if alerts := countEvents(t, nc, "leaf.events.alert.segment.regressed.order"); len(alerts) > 0 {
		t.Errorf("alerts though nothing was lost: %v", alerts)
	}

	copyTables(t, other, primary) // and this one does not follow any more
	stale := maxIDOf(t, primary, "order")
	testkit.Eventually(t, "many more IDs", func() bool { l.check(); return l.highest.Load() > stale+5000 })
	r.lead(servers[0].Addr())
	ahead(t, l, 5000)
	noticed(t, nc, "order")
	l.more(500)
	l.stop()
	l.agrees(url)
	for _, g := range generators {
		g.stop()
	}
}

package faults

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// leafTables are all that Leafbus keeps in a database.
var leafTables = []string{"leaf_alloc", "leaf_mark", "leaf_installation"}

// openDB opens a database as an operator does.
func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	kit.Must(t, err)
	cfg.Logger = &mysql.NopLogger{} // connections break on purpose
	connector, err := mysql.NewConnector(cfg)
	kit.Must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func sqlIn(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(testkit.Context(t), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func (in *installation) sql(statements ...string) {
	in.Helper()
	sqlIn(in.T, in.db, statements...)
}

// value is the first value of a query: a max_id, for example.
func (in *installation) value(query string) (n int64) {
	in.Helper()
	if err := in.db.QueryRowContext(testkit.Context(in.T), query).Scan(&n); err != nil {
		in.Fatalf("%s: %v", query, err)
	}
	return n
}

func (in *installation) maxID(tag string) int64 {
	in.Helper()
	return in.value("SELECT max_id FROM leaf_alloc WHERE biz_tag = '" + tag + "'")
}

// backUp keeps a copy of all tables in the same database.
func (in *installation) backUp() {
	in.Helper()
	for _, table := range leafTables {
		in.sql("DROP TABLE IF EXISTS saved_"+table, "CREATE TABLE saved_"+table+" LIKE "+table,
			"INSERT INTO saved_"+table+" SELECT * FROM "+table)
	}
}

// setBack gives all tables the rows of the copy, in one transaction, while generators use them.
func (in *installation) setBack() {
	in.Helper()
	testkit.Eventually(in.T, "the database to be set back", func() bool {
		err := in.trySetBack()
		if err != nil && !strings.Contains(err.Error(), "Deadlock") { // with a generator's write
			in.Fatal(err)
		}
		return err == nil
	})
}

func (in *installation) trySetBack() error {
	ctx := testkit.Context(in.T)
	tx, err := in.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, table := range leafTables {
		for _, s := range []string{"DELETE FROM " + table, "INSERT INTO " + table + " SELECT * FROM saved_" + table} {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

// makeAnew restores the copy as the script of a dump does.
func (in *installation) makeAnew() {
	in.Helper()
	for _, table := range leafTables {
		in.sql("DROP TABLE "+table, "CREATE TABLE "+table+" LIKE saved_"+table,
			"REPLACE INTO "+table+" SELECT * FROM saved_"+table) // a generator may have written its own row already
	}
}

// second starts another server with a database of the same name, empty.
func (in *installation) second() (addr string, db *sql.DB) {
	in.Helper()
	cfg, err := mysql.ParseDSN(in.dsn)
	kit.Must(in.T, err)
	other := kit.NewMariaDB(in.T)
	sqlIn(in.T, openDB(in.T, other.DSN("")), "CREATE DATABASE "+cfg.DBName)
	return other.Addr(), openDB(in.T, other.DSN(cfg.DBName))
}

// copyTables makes the tables of a database those of another.
func (in *installation) copyTables(from, to *sql.DB) {
	in.Helper()
	ctx := testkit.Context(in.T)
	for _, table := range leafTables {
		var name, definition string
		kit.Must(in.T, from.QueryRowContext(ctx, "SHOW CREATE TABLE "+table).Scan(&name, &definition))
		sqlIn(in.T, to, "DROP TABLE IF EXISTS "+table, definition)
		in.copyRows(ctx, table, from, to)
	}
}

func (in *installation) copyRows(ctx context.Context, table string, from, to *sql.DB) {
	in.Helper()
	rows, err := from.QueryContext(ctx, "SELECT * FROM "+table)
	kit.Must(in.T, err)
	defer rows.Close()
	columns, err := rows.Columns()
	kit.Must(in.T, err)
	for rows.Next() {
		values, places := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			places[i] = &values[i]
		}
		kit.Must(in.T, rows.Scan(places...))
		_, err := to.ExecContext(ctx, "INSERT INTO "+table+" VALUES (?"+strings.Repeat(", ?", len(columns)-1)+")", values...)
		kit.Must(in.T, err)
	}
	kit.Must(in.T, rows.Err())
}

// lead leads these generators to the database at an address, or to none while it is empty.
func (in *installation) lead(addr string, generators ...int) {
	for _, i := range generators {
		in.ways[i].Refuse(addr == "")
		if addr != "" {
			in.ways[i].Lead(addr)
		}
	}
}

package faults

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// leafTables are all that Leafbus keeps in a database.
var leafTables = []string{"leaf_alloc", "leaf_mark", "leaf_installation"}

// newDatabase makes an empty database, on a server that this row may kill if its setup says so.
func (in *installation) newDatabase() {
	in.Helper()
	if in.server {
		in.mariadb = kit.NewMariaDB(in.T)
		dsn, err := in.mariadb.Database()
		kit.Must(in.T, err)
		in.dsn = dsn
	} else {
		in.dsn = kit.NewDatabase(in.T)
	}
	in.db = openDB(in.T, in.dsn)
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg := parseDSN(t, dsn)
	cfg.Logger = &mysql.NopLogger{} // connections break on purpose
	connector, err := mysql.NewConnector(cfg)
	kit.Must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func parseDSN(t *testing.T, dsn string) *mysql.Config {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	kit.Must(t, err)
	return cfg
}

// through adds a link to the database for one more generator, and returns its DSN.
func (in *installation) through() string {
	in.Helper()
	cfg := parseDSN(in.T, in.dsn)
	way := kit.NewLink(in.T, cfg.Addr)
	in.ways = append(in.ways, way)
	cfg.Addr = way.Addr()
	return cfg.FormatDSN()
}

// sql runs statements as an operator does.
func (in *installation) sql(statements ...string) { in.Helper(); kit.SQL(in.T, in.dsn, statements...) }

// number is the first value of a query.
func (in *installation) number(query string) (n int64) {
	in.Helper()
	if err := in.db.QueryRowContext(testkit.Context(in.T), query).Scan(&n); err != nil {
		in.Fatalf("%s: %v", query, err)
	}
	return n
}

func (in *installation) maxID(tag string) int64 {
	in.Helper()
	return in.number("SELECT max_id FROM leaf_alloc WHERE biz_tag = '" + tag + "'")
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

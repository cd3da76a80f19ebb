package faults

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// databases are faults of MySQL. "It went back" means: max_id is below what was claimed. Service goes on then, nobody
// is refused, and operators hear of it.
var databases = []scenario{
	{
		// Many tags are used for the first time at once. What an operator decided outlives the restore, too.
		fault: "the database is set back, and all that knew better are gone", in: []setup{inMySQL},
		flags: manyTags("--tag", ":10"), tags: append([]string{order, snowflakes}, manyTags("", "")...),
		fails: callers.AnyFailure,
		strike: func(in *installation) {
			highest := in.take(idle)
			in.sql("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('sql', 77, 100)")
			in.backUp()
			if id := in.take("sql"); id != 77 {
				in.Errorf("the first ID of a row with max_id 77 is %d", id)
			}
			in.more(500)
			floor := in.highest() + 1_000_000
			in.leaf("tag", "set", order, "--max-id", fmt.Sprint(floor))
			in.leaf("tag", "rm", idle, "--yes")
			in.leaf("tag", "pause", "sql")
			in.each(in.kill, in.forgetFolder)
			stream, err := in.js.Stream(in.Context(), events.Stream)
			kit.Must(in.T, err)
			kit.Must(in.T, stream.Purge(in.Context()))
			in.setBack()
			in.callers.Floor(order, floor)
			in.each(in.again)
			in.above(idle, highest+1) // it is back, says the database
			in.refused("sql", 1, bus.Paused, "")
			in.leaf("tag", "resume", "sql")
			in.above("sql", 78)
			kit.Leaf(in.T, "tag", "set", "sql", "--max-id", "50", "-s", in.url).Want(in.T, 1, "conflict")
			in.more(500)
		},
	},
}

// manyTags are the names of 40 tags, each with something before and after it.
func manyTags(flag, step string) (all []string) {
	for i := range 40 {
		if flag != "" {
			all = append(all, flag)
		}
		all = append(all, fmt.Sprint("many", i, step))
	}
	return all
}

// leafTables are all that Leafbus keeps in a database.
var leafTables = []string{"leaf_alloc", "leaf_mark", "leaf_installation"}

// newDatabase makes an empty database.
func (in *installation) newDatabase() {
	in.Helper()
	in.dsn = kit.NewDatabase(in.T)
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

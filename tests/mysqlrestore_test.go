package tests

import (
	"database/sql"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// An older copy of the tables is put in their place under load: by a dump's script, which makes them anew, or in
// one transaction. Service goes on above all that was handed out, also by a generator that was not there.
func TestDatabaseRestoredFromAnOlderCopy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes   []string
		restore func(t *testing.T, db *sql.DB)
		reasons []bus.Reason
	}{
		"one generator, tables made anew": {[]string{"one"}, func(t *testing.T, db *sql.DB) {
			for _, table := range leafTables {
				text := definition(t, db, table)
				// As a dump with --replace: a generator may have written its installation's row back before.
				execute(t, db, "DROP TABLE "+table, text, "REPLACE INTO "+table+" SELECT * FROM saved_"+table)
			}
		}, []bus.Reason{bus.UnknownTag}},
		"three generators, one transaction": {[]string{"one", "two", "three"}, func(t *testing.T, db *sql.DB) {
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			for _, table := range leafTables {
				_, err := tx.ExecContext(t.Context(), "DELETE FROM "+table)
				must(t, err)
				_, err = tx.ExecContext(t.Context(), "INSERT INTO "+table+" SELECT * FROM saved_"+table)
				must(t, err)
			}
			must(t, tx.Commit())
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := mariadb.NewDatabase(t)
			db := openDB(t, dsn)
			server := newNATS(t)
			url := server.ClientURL()
			args := []string{"--max-step", "1000", "--max-wait", "2s", "--tag-refresh", "200ms"}
			join(t, url, dsn, c.nodes, append(args, "--tag", "order:500")...)
			nc := connect(t, url)
			l := startLoad(t, loadConfig{
				tag: "order", callers: 4, maxBatch: 200, patience: patience / 80, mayGiveUp: true,
				expected: c.reasons,
			}, url, url)
			l.more(300)
			for _, table := range leafTables {
				execute(t, db, "CREATE TABLE saved_"+table+" LIKE "+table, "INSERT INTO saved_"+table+" SELECT * FROM "+table)
			}
			var saved int64
			must(t, db.QueryRowContext(t.Context(), "SELECT max_id FROM saved_leaf_alloc").Scan(&saved))
			testkit.Eventually(t, "the database to be far ahead of the copy", func() bool { l.check(); return l.highest.Load() > saved+20_000 })
			c.restore(t, db)

			ahead(t, l, 5000)
			noticed(t, nc, "order")
			join(t, url, dsn, []string{"new"}, args...)
			nodes := append(c.nodes, "new")
			testkit.Eventually(t, "IDs of the generator that is new", func() bool {
				l.checkIDs()
				return askBuffers(t, nc, "order", len(nodes))["new"].Taken > 0
			})
			l.more(500)
			for node, b := range buffersOf(t, nc, "order", len(nodes)) {
				if b.State == "regressed" {
					t.Errorf("%s refuses: %+v", node, b)
				}
			}
			l.stop()
			l.agrees(url)
		})
	}
}

// leafTables are all that leaf keeps in the database.
var leafTables = []string{"leaf_alloc", "leaf_mark", "leaf_installation"}

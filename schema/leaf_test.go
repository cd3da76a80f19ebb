package schema

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/tests/kit"
)

// leafTable is Leaf's script without its DROP TABLE. Its article calls the
// column desc, its source description; neither is read by Leaf.
func leafTable(description, collation string) string {
	charset, _, _ := strings.Cut(collation, "_")
	if description != "" {
		description = "`" + description + "` varchar(256)  DEFAULT NULL,\n"
	}
	return "CREATE TABLE `leaf_alloc` (\n" +
		"`biz_tag` varchar(128)  NOT NULL DEFAULT '',\n" +
		"`max_id` bigint(20) NOT NULL DEFAULT '1',\n" +
		"`step` int(11) NOT NULL,\n" + description +
		"`update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,\n" +
		"PRIMARY KEY (`biz_tag`)\n" +
		") ENGINE=InnoDB DEFAULT CHARSET=" + charset + " COLLATE=" + collation
}

// leafDatabase is a new database with Leaf's table.
func leafDatabase(tb testing.TB, description, collation string) (dsn string) {
	tb.Helper()
	dsn = kit.NewDatabase(tb)
	execute(tb, dsn, leafTable(description, collation))
	return dsn
}

// snapshot is the definition of a table and all that is in it.
func snapshot(tb testing.TB, dsn, table string) string {
	tb.Helper()
	return answers(tb, dsn, "SHOW CREATE TABLE "+table) + answers(tb, dsn, "SELECT * FROM "+table+" ORDER BY 1")
}

// answers is all that a query answers, a line for each row.
func answers(tb testing.TB, dsn, query string) string {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(within(tb), query)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		tb.Fatal(err)
	}
	var text strings.Builder
	for rows.Next() {
		row, to := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			tb.Fatal(err)
		}
		fmt.Fprintln(&text, row)
	}
	return text.String()
}

// TestConformance runs the suite over our table, and over Leaf's under another name.
func TestConformance(t *testing.T) {
	for _, c := range allocatortest.NumbersCases() {
		for name, make := range map[string]func(testing.TB) string{
			"leaf_alloc": func(tb testing.TB) string { return kit.NewDatabase(tb) },
			"LEAF_ALLOC": func(tb testing.TB) string {
				dsn := leafDatabase(tb, "desc", "utf8mb4_general_ci")
				execute(tb, dsn, "RENAME TABLE leaf_alloc TO LEAF_ALLOC")
				return dsn
			},
		} {
			t.Run(c.Name+" "+name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, backend(t, make(t), name))
			})
		}
	}
}

// backend is a database for the suite.
func backend(tb testing.TB, dsn, table string) allocatortest.NumbersBackend {
	column := map[string]string{"leaf_alloc": "description", "LEAF_ALLOC": "`desc`"}[table]
	db := direct(tb, dsn+"?charset=utf8mb4")
	must := func(tb testing.TB, query string, args ...any) {
		tb.Helper()
		if _, err := db.Exec(query, args...); err != nil {
			tb.Fatal(err)
		}
	}
	return allocatortest.NumbersBackend{
		Open: func(tb testing.TB) allocator.Numbers { return newDatabase(tb, dsn, inTable(table)) },
		SetRow: func(tb testing.TB, r allocator.Row) {
			must(tb, "REPLACE INTO "+table+" (biz_tag, max_id, step, "+column+") VALUES (?, ?, ?, ?)", r.Name, r.MaxID, r.Step, r.Description)
		},
		DeleteRow: func(tb testing.TB, tag string) { must(tb, "DELETE FROM "+table+" WHERE biz_tag = ?", tag) },
	}
}

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

// collations are the usual ones of tables that are there.
var collations = []string{"utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin", "utf8mb3_general_ci", "latin1_swedish_ci", "latin1_bin"}

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

// TestLeafTable uses a table that Leaf has made and used.
func TestLeafTable(t *testing.T) {
	t.Parallel()
	for i, collation := range collations {
		description := []string{"description", "desc", ""}[i%3]
		t.Run(collation+" "+description, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, description, collation)
			execute(t, dsn,
				"INSERT INTO leaf_alloc (biz_tag, max_id, step, update_time) VALUES"+
					" ('leaf-segment-test', 1, 2000, '2019-06-01 12:00:00'), ('order', 7340123, 2000, '2019-06-01 12:00:00'),"+
					" ('two words', 5, 10, '2019-06-01 12:00:00')")
			if description != "" {
				execute(t, dsn, "UPDATE leaf_alloc SET `"+description+"` = 'Test leaf Segment Mode', update_time = update_time WHERE biz_tag = 'order'")
			}
			before := snapshot(t, dsn, "leaf_alloc")
			s := newDatabase(t, dsn)
			if created, err := s.Migrate(within(t)); err != nil || len(created) > 0 {
				t.Errorf("Migrate of what is there: %v, %v", created, err)
			}
			if after := snapshot(t, dsn, "leaf_alloc"); after != before {
				t.Errorf("Open changed the table:\n%s\nwas:\n%s", after, before)
			}

			text := ""
			if description != "" {
				text = "Test leaf Segment Mode"
			}
			wantRow(t, s, allocator.Row{Name: "order", MaxID: 7340123, Step: 2000, Description: text})
			for tag, first := range map[string]int64{"leaf-segment-test": 1, "order": 7340123} {
				if r := advance(t, s, tag, 1, 1); r.First != first || r.Last != first+1999 {
					t.Errorf("%s continues with %v, want %d", tag, r, first)
				}
			}
			if tags, unfit := served(t, s); tags != 2 || len(unfit) != 1 || !strings.Contains(unfit[0], "two words") {
				t.Errorf("Rows: %d, %v", tags, unfit)
			}
		})
	}
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

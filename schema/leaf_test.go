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
			s := newStore(t, dsn)
			if created, err := s.Migrate(within(t)); err != nil || len(created) > 0 {
				t.Errorf("Migrate of what is there: %v, %v", created, err)
			}
			if after := snapshot(t, dsn, "leaf_alloc"); after != before {
				t.Errorf("Open changed the table:\n%s\nwas:\n%s", after, before)
			}

			order := get(t, s, "order")
			if order.MaxID != 7340123 || order.Step != 2000 || order.Updated.Year() != 2019 || (order.Description != "") != (description != "") {
				t.Errorf("Get: %+v", order)
			}
			for tag, first := range map[string]int64{"leaf-segment-test": 1, "order": 7340123} {
				if g := reserve(t, s, tag, 1); g.First != first || g.Last != first+1999 {
					t.Errorf("%s continues with %v, want %d", tag, g.Range, first)
				}
			}
			remove(t, s, "order")
			createTag(t, s, "order", 1, 10)
			if g := reserve(t, s, "order", 1); g.First != 7342123 {
				t.Errorf("deleted and created, it continues with %v", g.Range)
			}
			if tags, unfit := served(t, s); tags != 2 || len(unfit) != 1 || !strings.Contains(unfit[0], "two words") {
				t.Errorf("Rows: %d, %v", tags, unfit)
			}
		})
	}
}

// TestLeafConformance runs the suite over Leaf's table under another name. Its collation takes
// order and ORDER for one: all but the case that creates such names.
func TestLeafConformance(t *testing.T) {
	for _, c := range allocatortest.Cases() {
		if c.Name == "TagsAreApart" { // see TestFoldedNames
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
			execute(t, dsn, "RENAME TABLE leaf_alloc TO LEAF_ALLOC")
			c.Run(t, backend(dsn, "LEAF_ALLOC"))
		})
	}
}

// TestFoldedNames asks for names that the collation takes for another one's.
func TestFoldedNames(t *testing.T) {
	t.Parallel()
	for _, collation := range []string{"utf8mb4_general_ci", "latin1_swedish_ci", "utf8mb3_general_ci"} {
		t.Run(collation, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, "description", collation)
			execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 500, 10), ('mail ', 1, 10), ('café', 1, 10)")
			before := snapshot(t, dsn, "leaf_alloc")
			s := newStore(t, dsn)
			for _, name := range []string{"ORDER", "Order", "mail", "cafe"} {
				maxID, text := int64(1_000_000), "mine"
				_, err := s.Reserve(within(t), name, 1, 1)
				wantError(t, "Reserve of "+name, err, allocator.ErrUnknownTag)
				_, err = s.Get(within(t), name)
				wantError(t, "Get of "+name, err, allocator.ErrUnknownTag)
				_, err = s.Update(within(t), name, allocator.Change{MaxID: &maxID, Description: &text})
				wantError(t, "Update of "+name, err, allocator.ErrUnknownTag)
				_, err = s.Delete(within(t), name, 1)
				wantError(t, "Delete of "+name, err, allocator.ErrUnknownTag)
				_, err = s.Create(within(t), allocator.Tag{Name: name, MaxID: 1, Step: 1})
				wantError(t, "Create of "+name, err, allocator.ErrExists)
				if err == nil || !strings.Contains(err.Error(), "collation") {
					t.Errorf("Create of %s does not say why: %v", name, err)
				}
			}
			if after := snapshot(t, dsn, "leaf_alloc"); after != before {
				t.Errorf("the row of another name was changed:\n%s\nwas:\n%s", after, before)
			}
			if g := reserve(t, s, "order", 1); g.First != 500 {
				t.Errorf("order continues with %v", g.Range)
			}
			// Also where the tag was seen under that name before.
			execute(t, dsn, "UPDATE leaf_alloc SET biz_tag = 'Order' WHERE biz_tag = 'order'")
			_, err := s.Reserve(within(t), "order", 1, 1)
			wantError(t, "Reserve of a tag whose row has another name by now", err, allocator.ErrUnknownTag)
			if g := reserve(t, s, "Order", 1); g.First != 510 {
				t.Errorf("Order continues with %v", g.Range)
			}
		})
	}
}

package schema

import (
	"io"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/tests/kit"
)

// refused opens, checks and claims a database with a store of these settings. Nothing may be created.
func refused(t *testing.T, dsn, says string, changes ...func(*Config)) {
	t.Helper()
	const count = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
	before := ask[int](t, dsn, count)
	s := prepare(t, dsn, io.Discard, changes...)
	_, migrate := s.Migrate(within(t))
	_, _, claim := s.Claim(within(t), "mine", true)
	for what, err := range map[string]error{"Migrate": migrate, "Open": s.Open(within(t)), "Claim": claim} {
		wantError(t, what, err, allocator.ErrRefused)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s does not say %q: %v", what, says, err)
		}
	}
	if after := ask[int](t, dsn, count); after != before {
		t.Errorf("%d tables were created", after-before)
	}
}

// TestTableInOtherLetters: the tags may be in a table whose name only looks like another one. A second table would
// begin at 1.
func TestTableInOtherLetters(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 77, 10)", "RENAME TABLE leaf_alloc TO LEAF_ALLOC")
	refused(t, dsn, "give --mysql-table LEAF_ALLOC")
	s := newDatabase(t, dsn, inTable("LEAF_ALLOC"))
	if r := advance(t, s, "order", 1, 1); r.First != 77 {
		t.Errorf("it goes on with %v", r)
	}
	execute(t, dsn, "RENAME TABLE leaf_mark TO Leaf_Mark")
	refused(t, dsn, "RENAME TABLE Leaf_Mark TO leaf_mark", inTable("LEAF_ALLOC"))
}

// TestOneTable: an installation keeps the table that it began with.
func TestOneTable(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	s := prepare(t, dsn, io.Discard, inTable("ids"))
	_, id, err := s.Claim(within(t), "mine", true)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		refused(t, dsn, "give --mysql-table ids")
		execute(t, dsn, "DELETE FROM leaf_installation", s.Repair("mine", id))
	}
	for _, table := range []string{"a.b", "a`b", "a b", "ü", strings.Repeat("a", 65)} {
		if _, err := New(Config{DSN: dsn, Table: table}); err == nil {
			t.Errorf("table %q is taken", table)
		}
	}
}

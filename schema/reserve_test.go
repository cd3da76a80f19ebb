package schema

import (
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestStepChangedBySQL hands out nothing by a step that is no longer true.
func TestStepChangedBySQL(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "desc", "utf8mb4_general_ci")
	s := newStore(t, dsn)
	createTag(t, s, "order", 1, 10)
	reserve(t, s, "order", 1)
	execute(t, dsn, "UPDATE leaf_alloc SET step = 500")
	_, err := s.Reserve(within(t), "order", 1, 1)
	wantError(t, "Reserve with the old step", err, allocator.ErrConflict)
	if g := reserve(t, s, "order", 1); g.First != 11 || g.Last != 510 {
		t.Errorf("then %+v", g)
	}
	execute(t, dsn, "UPDATE leaf_alloc SET max_id = 1001") // as a business moves over from its old IDs
	if g := reserve(t, s, "order", 1); g.First != 1001 {
		t.Errorf("max_id was moved: %+v", g)
	}
	execute(t, dsn, "DELETE FROM leaf_alloc")
	_, err = s.Reserve(within(t), "order", 1, 1)
	wantError(t, "Reserve of a row that is gone", err, allocator.ErrUnknownTag)
}

// TestEnds reserves at both ends of the numbers.
func TestEnds(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64
	dsn := kit.NewDatabase(t)
	s := newStore(t, dsn)
	for _, c := range []struct {
		max, n, from int64
		first, last  int64 // 0: exhausted
	}{
		{most - 25, 1, 1, most - 25, most - 16},
		{most - 10, 1, 1, most - 10, most - 1},
		{most - 9, 1, 1, most - 9, most - 1},
		{most - 9, 9, 1, most - 9, most - 1},
		{most - 9, 10, 1, 0, 0},
		{most - 1, 1, 1, most - 1, most - 1},
		{most, 1, 1, 0, 0},
		{1, most - 1, 1, 1, most - 1},
		{1, most, 1, 0, 0},
		{-5, most, 1, 0, 0},
		{-5, most - 1, 1, 1, most - 1},
		{0, 1, 1, 1, 10}, // Leaf's max_id is 1 where nothing was handed out; others begin at 0
		{-5, 20, 1, 1, 20},
		{math.MinInt64, 1, 1, 1, 10},
		{1, 1, most - 5, most - 5, most - 1}, // the database went back
		{1, 1, most, 0, 0},
	} {
		db := direct(t, dsn)
		if _, err := db.Exec("REPLACE INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', ?, 10)",
			c.max); err != nil {
			t.Fatal(err)
		}
		g, err := s.Reserve(within(t), "order", c.n, c.from)
		for errors.Is(err, allocator.ErrConflict) { // max_id was moved up
			g, err = s.Reserve(within(t), "order", c.n, c.from)
		}
		after := maxID(t, dsn, "order")
		switch {
		case c.first == 0:
			wantError(t, "Reserve", err, allocator.ErrExhausted)
			if after != max(c.max, c.from) && c.from > 1 || after != c.max && c.from == 1 {
				t.Errorf("%+v: max_id moved to %d", c, after)
			}
		case err != nil || g.First != c.first || g.Last != c.last || after != c.last+1:
			t.Errorf("%+v: Reserve gives %v, %v; max_id is %d", c, g.Range, err, after)
		}
	}
}

// TestDamagedRow refuses one tag, says how to mend it, and serves the others.
func TestDamagedRow(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	execute(t, dsn, "ALTER TABLE leaf_alloc MODIFY step bigint NOT NULL")
	s := newStore(t, dsn)
	createTag(t, s, "order", 101, 10)
	createTag(t, s, "mail", 1, 10)
	for _, step := range []int64{0, -1, 1 << 60} {
		first := reserve(t, s, "order", 1).Last + 1 // with a step that is known, until it is looked at again
		if _, err := direct(t, dsn).Exec("UPDATE leaf_alloc SET step = ? WHERE biz_tag = 'order'", step); err != nil {
			t.Fatal(err)
		}
		refused := func(when string) {
			t.Helper()
			_, err := s.Reserve(within(t), "order", 1, 1)
			wantError(t, when, err, allocator.ErrDamaged)
			if err == nil || !strings.Contains(err.Error(), "leaf tag set order --step") ||
				maxID(t, dsn, "order") != first {
				t.Errorf("%s, step %d, max_id is %d: %v", when, step, maxID(t, dsn, "order"), err)
			}
		}
		refused("at first")
		refused("the second time") // what the first has seen must not make the second believe it
		reserve(t, s, "mail", 1)
		if err := s.read(within(t), true, func(tag allocator.Tag) {
			if tag.Name == "order" {
				t.Errorf("%+v was reported", tag)
			}
		}); err != nil {
			t.Error(err)
		}
		refused("after a reading")
		text, fixed := "still wrong", int64(5)
		if _, err := s.Update(within(t), "order", allocator.Change{Description: &text}); err != nil {
			t.Errorf("Update: %v", err)
		}
		refused("after a change of something else")
		if _, err := s.Update(within(t), "order", allocator.Change{Step: &fixed}); err != nil {
			t.Errorf("Update: %v", err)
		}
		if g := reserve(t, s, "order", 1); g.First != first || g.Last != first+4 {
			t.Errorf("fixed: %v", g.Range)
		}
	}
}

// TestIllegalNames sends no name to the database that is no tag: bun leaves NULs out, so another tag would be meant.
func TestIllegalNames(t *testing.T) {
	t.Parallel()
	p, slow := through(t, kit.NewDatabase(t))
	s := newStore(t, slow)
	var sent atomic.Int64
	p.OnRequest(func([]byte) kit.Action {
		sent.Add(1)
		return kit.Forward
	})
	max := int64(1000)
	for _, name := range []string{"orders\x00", "\x00orders", "ord\x00ers", "two words", "", "größe", "orders ",
		"orders'", `orders\`, "a..b", "*", ">",
		strings.Repeat("x", 129)} {
		_, reserve := s.Reserve(within(t), name, 1, 1)
		_, get := s.Get(within(t), name)
		_, create := s.Create(within(t), allocator.Tag{Name: name, MaxID: 1, Step: 1})
		_, update := s.Update(within(t), name, allocator.Change{MaxID: &max})
		_, remove := s.Delete(within(t), name, 1)
		for _, err := range []error{reserve, get, create, update, remove} {
			wantError(t, name, err, allocator.ErrBadTag)
		}
	}
	for _, q := range []allocator.Query{{Prefix: "orders\x00"}, {After: "order\x00"}, {Prefix: "\x00"}, {Contains: "orders\x00"}, {Contains: "\x00"}} {
		if tags, err := s.List(within(t), q); err != nil || len(tags) > 0 {
			t.Errorf("List(%#v): %v, %v", q, tags, err)
		}
	}
	if n := sent.Load(); n > 0 {
		t.Errorf("%d statements were sent", n)
	}
}

// TestUnfitLater makes the table of an open store unfit: a statement that did not do what it should is no range.
// Triggers may keep max_id where it was, or keep the new one out of the answer. Of two rows the server returns one max_id.
func TestUnfitLater(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after string }{
		"a trigger that keeps max_id": {"CREATE TRIGGER t BEFORE UPDATE ON leaf_alloc FOR EACH ROW SET NEW.max_id = OLD.max_id", "DROP TRIGGER t"},
		"a trigger that answers":      {"CREATE TRIGGER t AFTER UPDATE ON leaf_alloc FOR EACH ROW SET @n = LAST_INSERT_ID(4711)", "DROP TRIGGER t"},
		"no key":                      {"ALTER TABLE leaf_alloc DROP PRIMARY KEY", "DELETE FROM leaf_alloc WHERE max_id > 4999"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, "", "utf8mb4_general_ci")
			s := newStore(t, dsn+"?clientFoundRows=true")
			createTag(t, s, "order", 1, 10)
			reserve(t, s, "order", 1)
			execute(t, dsn, c.before)
			if name == "no key" {
				execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 5000, 10)")
			}
			for range 2 {
				if g, err := s.Reserve(within(t), "order", 1, 1); err == nil {
					t.Errorf("Reserve returned %v, and max_id is %d", g.Range, maxID(t, dsn, "order"))
				}
			}
			execute(t, dsn, c.after)
			if g := reserve(t, s, "order", 1); g.Last+1 != maxID(t, dsn, "order") || g.First < 11 {
				t.Errorf("Reserve returned %v, and max_id is %d", g.Range, maxID(t, dsn, "order"))
			}
		})
	}
}

// account returns the DSN for a new account that has these rights on the database.
func account(tb testing.TB, dsn, rights string) string {
	tb.Helper()
	return edit(tb, dsn, func(cfg *mysql.Config) {
		user := "u" + cfg.DBName[len(cfg.DBName)-12:]
		execute(tb, dsn, "CREATE USER "+user+"@'%' IDENTIFIED BY 'secret'", "GRANT "+rights+" ON "+cfg.DBName+".* TO "+user+"@'%'")
		tb.Cleanup(func() { execute(tb, dsn, "DROP USER "+user+"@'%'") })
		cfg.User, cfg.Passwd = user, "secret"
	})
}

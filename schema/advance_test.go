package schema

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestAdvanceStep has rows whose step and max_id SQL changes: each range has the step that the row has now.
func TestAdvanceStep(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "desc", "utf8mb4_general_ci")
	p, slow := through(t, dsn)
	s := newDatabase(t, slow)
	insert(t, s, "order", 1, 10)
	statements := 0
	p.OnRequest(func([]byte) kit.Action { statements++; return kit.Forward })
	for _, c := range []struct {
		sql         string
		n, expected int64
		first, end  int64
		step        int64
		most        int // statements
	}{
		{"DO 0", 1, 10, 1, 11, 10, 1},
		{"DO 0", 25, 10, 11, 36, 10, 1},
		{"DO 0", 1, 7, 36, 46, 10, 5},
		{"UPDATE leaf_alloc SET step = 500", 1, 10, 46, 546, 500, 5},
		{"UPDATE leaf_alloc SET step = 3, max_id = 5001", 1, 500, 5001, 5004, 3, 5}, // as a business moves over from its old IDs
		{"UPDATE leaf_alloc SET max_id = 101", 1, 3, 101, 104, 3, 1},                // what is in use the records know
	} {
		execute(t, dsn, c.sql)
		statements = 0
		r, step, err := s.Advance(within(t), "order", c.n, c.expected, 1)
		if err != nil || r != (allocator.Range{First: c.first, Last: c.end - 1}) || step != c.step || maxID(t, dsn, "order") != c.end || statements > c.most {
			t.Errorf("%+v: %v, step %d, %v, after %d statements; max_id is %d", c, r, step, err, statements, maxID(t, dsn, "order"))
		}
	}
	for _, sql := range []string{"DELETE FROM leaf_alloc", "CREATE TABLE new LIKE leaf_alloc; RENAME TABLE leaf_alloc TO old, new TO leaf_alloc"} {
		execute(t, dsn, strings.Split(sql, "; ")...)
		_, _, err := s.Advance(within(t), "order", 1, 10, 1)
		wantError(t, sql, err, allocator.ErrUnknownTag)
		insert(t, s, "order", 1, 10)
		advance(t, s, "order", 1, 1)
	}
}

// TestAdvanceEnds takes ranges at both ends of the numbers.
func TestAdvanceEnds(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64
	dsn := kit.NewDatabase(t)
	s := newDatabase(t, dsn)
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
		{0, most, 1, 0, 0},
		{0, most - 1, 1, 1, most - 1},
		{0, 1, 1, 1, 10},                     // Leaf's max_id is 1 where nothing was handed out; others begin at 0
		{1, 1, most - 5, most - 5, most - 1}, // the database went back
		{1, 1, most, 0, 0},
	} {
		if _, err := direct(t, dsn).Exec("REPLACE INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', ?, 10)", c.max); err != nil {
			t.Fatal(err)
		}
		wantRow(t, s, allocator.Row{Name: "order", MaxID: max(c.max, 1), Step: 10})
		r, _, err := s.Advance(within(t), "order", c.n, 10, c.from)
		if _, moved := errors.AsType[*allocator.AdvancedError](err); moved == (c.from > 1) && moved {
			r, _, err = s.Advance(within(t), "order", c.n, 10, c.from)
		}
		after := maxID(t, dsn, "order")
		switch {
		case c.first == 0:
			wantError(t, "Advance", err, allocator.ErrExhausted)
			if after != max(c.max, c.from) && c.from > 1 || after != c.max && c.from == 1 {
				t.Errorf("%+v: max_id moved to %d", c, after)
			}
		case err != nil || r.First != c.first || r.Last != c.last || after != c.last+1:
			t.Errorf("%+v: Advance gives %v, %v; max_id is %d", c, r, err, after)
		}
	}
}

// TestAdvanceDamaged refuses one tag, says how to repair it, and serves the others.
func TestAdvanceDamaged(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	execute(t, dsn, "ALTER TABLE leaf_alloc MODIFY step bigint NOT NULL")
	s := newDatabase(t, dsn)
	insert(t, s, "order", 101, 10)
	insert(t, s, "mail", 1, 10)
	cases := []struct{ maxID, step int64 }{{0, 0}, {0, -1}, {0, 1 << 60}, {-5, 5}, {math.MinInt64, 5}}
	for _, c := range cases {
		end := advance(t, s, "order", 1, 1).Last + 1
		if c.maxID == 0 {
			c.maxID = end
		}
		if _, err := direct(t, dsn).Exec("UPDATE leaf_alloc SET step = ?, max_id = ? WHERE biz_tag = 'order'", c.step, c.maxID); err != nil {
			t.Fatal(err)
		}
		for _, step := range []int64{10, c.step} { // also where the record has the same
			_, _, err := s.Advance(within(t), "order", 1, step, 1)
			wantError(t, "Advance", err, allocator.ErrDamaged)
			if err == nil || !strings.Contains(err.Error(), "where biz_tag is 'order'") || maxID(t, dsn, "order") != c.maxID {
				t.Errorf("%+v, max_id is %d: %v", c, maxID(t, dsn, "order"), err)
			}
		}
		wantRow(t, s, allocator.Row{Name: "order", MaxID: max(c.maxID, 1), Step: c.step, Problem: allocator.ErrDamaged})
		advance(t, s, "mail", 1, 1)
		fixed := int64(5)
		if err := s.Raise(within(t), "order", 1, nil, new("something else")); err != nil {
			t.Errorf("Raise of something else: %v", err)
		}
		wantError(t, "Raise", s.Raise(within(t), "order", 1, new(int64(0)), nil), idspace.ErrBadValue)
		if err := s.Raise(within(t), "order", end, &fixed, new("")); err != nil {
			t.Errorf("Raise: %v", err)
		}
		if r := advance(t, s, "order", 1, 1); r.First != end || r.Last != end+4 {
			t.Errorf("repaired: %v", r)
		}
	}
}

// TestNamesThatAreNoTags sends no such name to the database: bun leaves NULs out, so another tag would be meant.
func TestNamesThatAreNoTags(t *testing.T) {
	t.Parallel()
	s := prepare(t, "root@tcp(127.0.0.1:1)/leaf", &notes{})
	for _, name := range []string{"orders\x00", "\x00orders", "two words", "", "größe", "orders ", "orders'", `orders\`, "*", strings.Repeat("x", 129)} {
		_, _, advance := s.Advance(within(t), name, 1, 10, 1)
		_, peek := s.Peek(within(t), name)
		for _, err := range []error{advance, peek, s.Add(within(t), allocator.Row{Name: name, MaxID: 1, Step: 1}),
			s.Raise(within(t), name, 1000, nil, nil), s.Mark(within(t), name, 1, ""), s.Remove(within(t), name, 1, "")} {
			wantError(t, name, err, idspace.ErrBadTag)
		}
	}
}

// TestAdvanceUnfit makes the table of an open database unfit: a statement that did not do what it should is no range.
// Triggers may keep max_id where it was, or keep the new one out of the answer. Of two rows the server returns one
// max_id.
func TestAdvanceUnfit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after string }{
		"a trigger that keeps max_id": {"CREATE TRIGGER t BEFORE UPDATE ON leaf_alloc FOR EACH ROW SET NEW.max_id = OLD.max_id", "DROP TRIGGER t"},
		"a trigger that answers":      {"CREATE TRIGGER t AFTER UPDATE ON leaf_alloc FOR EACH ROW SET @n = LAST_INSERT_ID(4711)", "DROP TRIGGER t"},
		"no key":                      {"ALTER TABLE leaf_alloc DROP PRIMARY KEY", "DELETE FROM leaf_alloc WHERE max_id > 4999"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, "", "utf8mb4_general_ci")
			s := newDatabase(t, dsn+"?clientFoundRows=true")
			insert(t, s, "order", 1, 10)
			advance(t, s, "order", 1, 1)
			execute(t, dsn, c.before)
			if name == "no key" {
				execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 5000, 10)")
			}
			for range 2 {
				if r, _, err := s.Advance(within(t), "order", 1, 10, 1); err == nil {
					t.Errorf("Advance returned %v, and max_id is %d", r, maxID(t, dsn, "order"))
				}
			}
			execute(t, dsn, c.after)
			if r := advance(t, s, "order", 1, 1); r.Last+1 != maxID(t, dsn, "order") || r.First < 11 {
				t.Errorf("Advance returned %v, and max_id is %d", r, maxID(t, dsn, "order"))
			}
		})
	}
}

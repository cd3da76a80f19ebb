package schema

import (
	"bytes"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestRowsUnfit has rows that SQL made, and that cannot be served.
func TestRowsUnfit(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	s := newDatabase(t, dsn)
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 0, 10), ('two words', 1, 10), ('', 7, 10), ('mail ', 7, 10), ('zero', 1, 0), ('back', -1, 10)",
		"INSERT INTO leaf_mark (biz_tag, mark) VALUES ('two words', 5), ('gone away', 7), ('gone', 0)")
	all := rows(t, s)
	for name, want := range map[string]error{"order": nil, "two words": idspace.ErrBadTag, "": idspace.ErrBadTag, "mail ": idspace.ErrBadTag, "zero": allocator.ErrDamaged, "back": allocator.ErrDamaged} {
		wantError(t, name, all[name].Problem, want)
		if all[name].MaxID == 0 {
			t.Errorf("%q is missing", name)
		}
	}
	if len(all) != 8 || all["two words"].Mark != 5 || all["gone"].Mark != 1 || all["gone away"].MaxID != 0 {
		t.Errorf("Rows has %+v", all)
	}
}

// TestRowsBroken loses the connection before the rows have come: that is no short table.
func TestRowsBroken(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	p, slow := through(t, dsn)
	s := newDatabase(t, slow)
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10)")
	p.OnRequest(func(data []byte) kit.Action {
		if bytes.Contains(data, []byte("max_id")) {
			return kit.CutAfter
		}
		return kit.Forward
	})
	err := s.Rows(within(t), func(r allocator.Row) { t.Errorf("it has %+v", r) })
	wantError(t, "Rows that broke", err, allocator.ErrUnavailable)
	wantError(t, "Err", s.Err(), allocator.ErrUnavailable)
	p.OnRequest(nil)
	if n := len(rows(t, s)); n != 1 || s.Err() != nil {
		t.Errorf("then it has %d rows, and Err is %v", n, s.Err())
	}
}

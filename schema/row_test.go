package schema

import (
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
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

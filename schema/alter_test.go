package schema

import (
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// TestAltered alters the table of a store that is open: Check looks at it again.
func TestAltered(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	s := newDatabase(t, dsn)
	insert(t, s, "order", 1, 10)
	for _, c := range []struct{ alter, word, back string }{
		{"ENGINE=MyISAM", "engine MyISAM", "ENGINE=InnoDB"},
		{"MODIFY max_id bigint unsigned NOT NULL DEFAULT 1", "max_id is bigint(20) unsigned", "MODIFY max_id bigint NOT NULL DEFAULT 1"},
		{"DROP PRIMARY KEY", "biz_tag is not unique", "ADD PRIMARY KEY (biz_tag)"},
	} {
		execute(t, dsn, "ALTER TABLE leaf_alloc "+c.alter)
		err := s.Check(within(t))
		wantError(t, c.alter, err, allocator.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: Check says %v", c.alter, err)
		}
		was := maxID(t, dsn, "order")
		_, _, err = s.Advance(within(t), "order", 1, 10, 1)
		wantError(t, c.alter, err, allocator.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), c.word) || maxID(t, dsn, "order") != was {
			t.Errorf("%s: Advance says %v, max_id is %d, was %d", c.alter, err, maxID(t, dsn, "order"), was)
		}
		execute(t, dsn, "ALTER TABLE leaf_alloc "+c.back)
		if err := s.Check(within(t)); err != nil {
			t.Errorf("%s: Check says %v", c.back, err)
		}
		advance(t, s, "order", 1, 1)
	}
}

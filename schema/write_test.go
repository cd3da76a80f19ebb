package schema

import (
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestDescriptions has a column that takes less than ours, or none.
func TestDescriptions(t *testing.T) {
	t.Parallel()
	for text, columns := range map[string][]string{"täglich 日本語": {"", "desc"}, strings.Repeat("x", 257): {"desc"}} {
		for _, column := range columns {
			s := newDatabase(t, leafDatabase(t, column, "latin1_swedish_ci"))
			none := allocator.Row{Name: "order"}
			row := allocator.Row{Name: "order", MaxID: 1, Step: 10}
			unfit := row
			unfit.Description = text
			wantError(t, "Add", s.Add(within(t), unfit), idspace.ErrBadValue)
			wantRow(t, s, none)
			if err := s.Add(within(t), row); err != nil {
				t.Errorf("Add: %v", err)
			}
			step := int64(20)
			err := s.Raise(within(t), "order", 1000, &step, &text)
			wantError(t, "Raise", err, idspace.ErrBadValue)
			if column == "" && (err == nil || !strings.Contains(err.Error(), "ALTER TABLE leaf_alloc ADD description")) {
				t.Errorf("Raise does not say what to do: %v", err)
			}
			if wantRow(t, s, row); s.Err() != nil {
				t.Errorf("a bad value is no outage: %v", s.Err())
			}
			if err := s.Raise(within(t), "order", 1000, &step, new(string)); err != nil {
				t.Errorf("Raise: %v", err)
			}
			wantRow(t, s, allocator.Row{Name: "order", MaxID: 1000, Step: 20})
		}
	}
}

// TestMarks keeps of each name how far it was, also where names differ only in letters' case.
func TestMarks(t *testing.T) {
	t.Parallel()
	s := newDatabase(t, leafDatabase(t, "description", "utf8mb4_general_ci"))
	insert(t, s, "order", 500, 10)
	for _, c := range []struct {
		tag, kind  string
		mark, want int64
		is         string
	}{
		{"order", "", 0, 1, ""}, {"order", allocator.KindTrend, 7, 7, "trend"}, {"order", "", 5, 7, "trend"}, {"order", allocator.KindStrict, 6, 7, "strict"},
		{"Order", "", 1000, 1000, ""}, {"ORDER", allocator.KindOpaque, 3, 3, "opaque"},
	} {
		if err := s.Mark(within(t), c.tag, c.mark, c.kind); err != nil {
			t.Errorf("Mark: %v", err)
		}
		if r := peek(t, s, c.tag); r.Mark != c.want || r.Kind != c.is || (r.MaxID == 500) != (c.tag == "order") {
			t.Errorf("%+v: %+v", c, r)
		}
	}
	// A range that was taken and is not claimed yet counts, too.
	for _, c := range [][2]int64{{1, 500}, {900, 900}} {
		if err := s.Remove(within(t), "order", c[0], ""); err != nil {
			t.Errorf("Remove: %v", err)
		}
		wantRow(t, s, allocator.Row{Name: "order", Mark: c[1], Kind: "strict"})
		insert(t, s, "order", 500, 10)
	}
	for _, tag := range []string{"Order", "mail"} {
		if err := s.Remove(within(t), tag, 1, allocator.KindTrend); err != nil {
			t.Errorf("Remove without a row: %v", err)
		}
	}
	want := map[string]allocator.Row{
		"order": {Name: "order", MaxID: 500, Step: 10, Mark: 900, Kind: "strict"}, "Order": {Name: "Order", Mark: 1000, Kind: "trend"},
		"ORDER": {Name: "ORDER", Mark: 3, Kind: "opaque"}, "mail": {Name: "mail", Mark: 1, Kind: "trend"},
	}
	for name, r := range rows(t, s) {
		if r != want[name] {
			t.Errorf("Rows has %+v, want %+v", r, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("Rows lacks %v", want)
	}
}

// TestRemoveBetween removes a tag between the statements of a reading: no reading misses both its row and its mark.
func TestRemoveBetween(t *testing.T) {
	t.Parallel()
	for nth := 1; ; nth++ {
		dsn := kit.NewDatabase(t)
		p, slow := through(t, dsn)
		s, other := newDatabase(t, slow), newDatabase(t, dsn)
		removed := false
		for what, look := range map[string]func() allocator.Row{
			"Peek": func() allocator.Row { return peek(t, s, "order") },
			"Rows": func() allocator.Row { return rows(t, s)["order"] },
		} {
			execute(t, dsn, "DELETE FROM leaf_mark", "REPLACE INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 500, 10)")
			statements := 0
			var once sync.Mutex
			p.OnRequest(func([]byte) kit.Action {
				once.Lock()
				defer once.Unlock()
				if statements++; statements == nth {
					removed = true
					if err := other.Remove(within(t), "order", 1, allocator.KindTrend); err != nil {
						t.Errorf("Remove: %v", err)
					}
				}
				return kit.Forward
			})
			if r := look(); max(r.MaxID, r.Mark) != 500 {
				t.Errorf("%s, when the tag is removed before statement %d: %+v", what, nth, r)
			}
			p.OnRequest(nil)
		}
		if !removed {
			return
		}
	}
}

// TestNamesOfOthers asks for names that the collation takes for those of other rows.
func TestNamesOfOthers(t *testing.T) {
	t.Parallel()
	for _, collation := range []string{"utf8mb4_general_ci", "latin1_swedish_ci", "utf8mb3_general_ci"} {
		t.Run(collation, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, "description", collation)
			execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 500, 10), ('mail ', 1, 10), ('café', 1, 10)")
			before := snapshot(t, dsn, "leaf_alloc")
			s := newDatabase(t, dsn)
			for _, name := range []string{"ORDER", "Order", "mail", "cafe"} {
				_, _, err := s.Advance(within(t), name, 10, 10, 1)
				wantError(t, "Advance of "+name, err, allocator.ErrUnknownTag)
				wantRow(t, s, allocator.Row{Name: name})
				wantError(t, "Raise of "+name, s.Raise(within(t), name, 1_000_000, nil, new("mine")), allocator.ErrUnknownTag)
				err = s.Add(within(t), allocator.Row{Name: name, MaxID: 1, Step: 1})
				wantError(t, "Add of "+name, err, allocator.ErrExists)
				if err == nil || !strings.Contains(err.Error(), "collation") {
					t.Errorf("Add of %s does not say why: %v", name, err)
				}
				if err := s.Remove(within(t), name, 7, ""); err != nil {
					t.Errorf("Remove of %s: %v", name, err)
				}
				wantRow(t, s, allocator.Row{Name: name, Mark: 7})
			}
			if after := snapshot(t, dsn, "leaf_alloc"); after != before {
				t.Errorf("the row of another name was changed:\n%s\nwas:\n%s", after, before)
			}
			if r := advance(t, s, "order", 1, 1); r.First != 500 {
				t.Errorf("order continues with %v", r)
			}
			// Also where the tag was seen under that name before.
			execute(t, dsn, "UPDATE leaf_alloc SET biz_tag = 'Order' WHERE biz_tag = 'order'")
			_, _, err := s.Advance(within(t), "order", 1, 10, 1)
			wantError(t, "Advance of a tag whose row has another name by now", err, allocator.ErrUnknownTag)
			if r := advance(t, s, "Order", 1, 1); r.First != 510 {
				t.Errorf("Order continues with %v", r)
			}
		})
	}
}

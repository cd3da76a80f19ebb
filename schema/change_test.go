package schema

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

func setMaxID(tb testing.TB, s allocator.Store, tag string, to int64) allocator.Tag {
	tb.Helper()
	t, err := s.Update(within(tb), tag, allocator.Change{MaxID: &to})
	if err != nil {
		tb.Fatalf("Update: %v", err)
	}
	return t
}

func remove(tb testing.TB, s allocator.Store, tag string) allocator.Tag {
	tb.Helper()
	t, err := s.Delete(within(tb), tag, 1)
	if err != nil {
		tb.Fatalf("Delete: %v", err)
	}
	return t
}

func TestDescriptions(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	s := newStore(t, dsn)
	for i, text := range []string{
		"plain", `it's "quoted" and \ back\\slashed \' \n`, "?0 ? ?TableAlias ?name", "täglich 日本語 🍃", "line\nline\r\ttab\x1a", "-- /* ; */ #", "%s%d_%",
		strings.Repeat("ü", 256), "",
	} {
		tag := "order" + string(rune('a'+i))
		created, err := s.Create(within(t), allocator.Tag{Name: tag, MaxID: 1, Step: 10, Description: text})
		if err != nil || created.Description != text {
			t.Errorf("Create: %+v, %v", created, err)
		}
		createTag(t, s, tag+".updated", 1, 10)
		if changed, err := s.Update(within(t), tag+".updated", allocator.Change{Description: &text}); err != nil || changed.Description != text {
			t.Errorf("Update: %+v, %v", changed, err)
		}
		for _, tag := range []string{tag, tag + ".updated"} {
			if got := get(t, s, tag).Description; got != text {
				t.Errorf("%q became %q", text, got)
			}
		}
		remove(t, s, tag)
		remove(t, s, tag+".updated")
	}
	createTag(t, s, "order", 7, 10)
	long := strings.Repeat("x", 257)
	_, err := s.Create(within(t), allocator.Tag{Name: "mail", MaxID: 1, Step: 1, Description: long})
	wantError(t, "Create with a description that is too long", err, allocator.ErrBadValue)
	_, err = s.Update(within(t), "order", allocator.Change{Description: &long})
	wantError(t, "Update with a description that is too long", err, allocator.ErrBadValue)
	_, err = s.Get(within(t), "mail")
	wantError(t, "Get of what was not created", err, allocator.ErrUnknownTag)
	if s.Err() != nil {
		t.Errorf("a bad value is no outage: %v", s.Err())
	}
}

// TestDescriptionColumn has a column that takes less than ours, or none.
func TestDescriptionColumn(t *testing.T) {
	t.Parallel()
	text := "täglich 日本語"
	for column, want := range map[string]error{"": allocator.ErrBadValue, "desc": allocator.ErrBadValue} {
		dsn := leafDatabase(t, column, "latin1_swedish_ci")
		s := newStore(t, dsn)
		_, err := s.Create(within(t), allocator.Tag{Name: "order", MaxID: 1, Step: 10, Description: text})
		wantError(t, "Create", err, want)
		_, err = s.Get(within(t), "order")
		wantError(t, "Get of what was not created", err, allocator.ErrUnknownTag)
		createTag(t, s, "order", 1, 10)
		step, max := int64(20), int64(1000)
		_, err = s.Update(within(t), "order", allocator.Change{Step: &step, MaxID: &max, Description: &text})
		wantError(t, "Update", err, want)
		if column == "" && (err == nil || !strings.Contains(err.Error(), "ALTER TABLE leaf_alloc ADD description")) {
			t.Errorf("Update does not say what to do: %v", err)
		}
		if tag := get(t, s, "order"); tag.Step != 10 || tag.MaxID != 1 {
			t.Errorf("half of an Update was done: %+v", tag)
		}
	}
}

// TestUpdate changes what it is told, and nothing else.
func TestUpdate(t *testing.T) {
	t.Parallel()
	s := newStore(t, leafDatabase(t, "description", "utf8mb4_general_ci"))
	for _, tag := range []string{"order", "orders", "mail"} {
		createTag(t, s, tag, 100, 10)
	}
	step, text, max := int64(20), "text", int64(5000)
	for _, c := range []struct {
		change allocator.Change
		want   allocator.Tag
	}{
		{allocator.Change{}, allocator.Tag{Step: 10, MaxID: 100, Floor: 100}},
		{allocator.Change{Step: &step}, allocator.Tag{Step: 20, MaxID: 100, Floor: 100}},
		{allocator.Change{Description: &text}, allocator.Tag{Step: 20, MaxID: 100, Description: "text", Floor: 100}},
		{allocator.Change{MaxID: &max}, allocator.Tag{Step: 20, MaxID: 5000, Description: "text", Floor: 5000}},
		{allocator.Change{MaxID: &max}, allocator.Tag{Step: 20, MaxID: 5000, Description: "text", Floor: 5000}},
		{allocator.Change{Step: &step}, allocator.Tag{Step: 20, MaxID: 5000, Description: "text", Floor: 5000}},
	} {
		c.want.Name = "order"
		got, err := s.Update(within(t), "order", c.change)
		if err != nil || got != get(t, s, "order") {
			t.Errorf("Update returned %+v, %v; Get %+v", got, err, get(t, s, "order"))
		}
		if c.want.Updated = got.Updated; got != c.want {
			t.Errorf("Update(%+v) gives %+v, want %+v", c.change, got, c.want)
		}
	}
	for _, tag := range []string{"orders", "mail"} {
		if got := get(t, s, tag); got.Step != 10 || got.MaxID != 100 || got.Floor != 100 || got.Description != "" {
			t.Errorf("%s was changed too: %+v", tag, got)
		}
	}
	reserve(t, s, "order", 1)
	below := int64(5001)
	_, err := s.Update(within(t), "order", allocator.Change{MaxID: &below, Step: &below})
	wantError(t, "Update of max_id to where it was", err, allocator.ErrConflict)
	most := int64(math.MaxInt64)
	if got := setMaxID(t, s, "order", most); got.MaxID != most || got.Floor != most || got.Step != 20 {
		t.Errorf("Update to the largest number: %+v", got)
	}
}

// TestTombstones keeps how far a tag was, whoever deletes and inserts its row.
func TestTombstones(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	s := newStore(t, dsn)
	createTag(t, s, "order", 1, 10)
	createTag(t, s, "mail", 1, 10)
	reserve(t, s, "order", 500)
	tomb := remove(t, s, "order")
	if tomb.Name != "order" || !tomb.Deleted || tomb.MaxID != 501 || tomb.Step != 10 {
		t.Errorf("Delete: %+v", tomb)
	}
	_, err := s.Get(within(t), "order")
	wantError(t, "Get", err, allocator.ErrDeleted)
	_, err = s.Delete(within(t), "order", 1)
	wantError(t, "Delete again", err, allocator.ErrDeleted)
	_, err = s.Update(within(t), "order", allocator.Change{})
	wantError(t, "Update", err, allocator.ErrDeleted)

	// By plain SQL a row may begin anywhere; that it was further stays noted.
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 0, 10)")
	if tag := get(t, s, "order"); tag.MaxID != 1 || tag.Floor != 501 || tag.Deleted {
		t.Errorf("inserted by SQL: %+v", tag)
	}
	if tags, err := s.List(within(t), allocator.Query{Limit: 10}); err != nil || len(tags) != 2 || tags[1].MaxID != 1 || tags[1].Floor != 501 {
		t.Errorf("List: %+v, %v", tags, err)
	}
	_, err = s.Reserve(within(t), "order", 1, 501)
	if moved, ok := errors.AsType[*allocator.AdvancedError](err); !ok || *moved != (allocator.AdvancedError{Tag: "order", Got: 1, Seen: 501}) {
		t.Errorf("Reserve of a row that is below what was handed out: %v", err)
	}
	if s.Err() != nil {
		t.Errorf("it is no outage: %v", s.Err())
	}
	if max := maxID(t, dsn, "order"); max != 501+raiseRoom*10 {
		t.Errorf("max_id is %d", max)
	}
	execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag = 'order'")

	for i, c := range []struct{ maxID, want int64 }{{1, 501}, {7000, 7000}, {7, 7000}} {
		tag, err := s.Create(within(t), allocator.Tag{Name: "order", MaxID: c.maxID, Step: 10})
		if err != nil || tag.MaxID != c.want || tag.Floor > tag.MaxID || tag.Floor < 501 || tag.Deleted {
			t.Errorf("Create %d: %+v, %v; want max_id %d", i, tag, err, c.want)
		}
		if tomb := remove(t, s, "order"); tomb.MaxID != c.want {
			t.Errorf("Delete: %+v", tomb)
		}
	}

	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10)")
	if tomb := remove(t, s, "order"); tomb.MaxID != 7000 {
		t.Errorf("Delete of the row inserted by SQL: %+v", tomb)
	}
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10)")
	if tag := setMaxID(t, s, "order", 7000); tag.MaxID != 7000 || tag.Floor != 7000 {
		t.Errorf("moved to where it was: %+v", tag)
	}
	if g := reserve(t, s, "order", 1); g.First != 7000 {
		t.Errorf("Reserve: %v", g.Range)
	}

	// A row that vanished by plain SQL leaves the floor at the least.
	execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag = 'order'")
	_, err = s.Get(within(t), "order")
	if !errors.Is(err, allocator.ErrUnknownTag) || errors.Is(err, allocator.ErrDeleted) {
		t.Errorf("Get of a row that somebody removed: %v", err)
	}
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10)")
	_, err = newStore(t, dsn).Reserve(within(t), "order", 1, 7000)
	if _, ok := errors.AsType[*allocator.AdvancedError](err); !ok {
		t.Errorf("Reserve of a row that is below its floor: %v", err)
	}
	execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag = 'order'")
	createTag(t, s, "order", 1, 10)
	if g := reserve(t, s, "order", 1); g.First != 7000 {
		t.Errorf("created after that: %v", g.Range)
	}
	if tag := get(t, s, "mail"); tag.MaxID != 1 || tag.Floor != 0 {
		t.Errorf("another tag was changed: %+v", tag)
	}
}

// TestMarksAreApart notes of each tag what is its own, also where names differ
// only in letters' case.
func TestMarksAreApart(t *testing.T) {
	t.Parallel()
	s := newStore(t, mariadb.NewDatabase(t))
	for i, tag := range []string{"order", "Order", "ORDER"} {
		createTag(t, s, tag, int64(i+1)*1000, 10)
		remove(t, s, tag)
	}
	for i, tag := range []string{"order", "Order", "ORDER"} {
		createTag(t, s, tag, 1, 10)
		if got := get(t, s, tag); got.MaxID != int64(i+1)*1000 {
			t.Errorf("created again: %+v", got)
		}
	}
}

// TestDeleteBetween deletes a tag that another handle creates at this moment:
// the row that is inserted must begin above all that the tag ever gave.
func TestDeleteBetween(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "", "utf8mb4_general_ci")
	p, slow := through(t, dsn)
	s, other := newStore(t, slow), newStore(t, dsn)
	var once sync.Once
	var c allocatortest.Checker
	p.OnRequest(func(data []byte) proxy.Action {
		if bytes.Contains(data, []byte("INSERT INTO leaf_alloc")) {
			once.Do(func() { // only now the row is inserted
				createTag(t, other, "order", 1, 10)
				c.Add(reserve(t, other, "order", 500).Range)
				remove(t, other, "order")
			})
		}
		return proxy.Forward
	})
	created, err := s.Create(within(t), allocator.Tag{Name: "order", MaxID: 1, Step: 10})
	if err != nil || created.MaxID != 501 {
		t.Errorf("Create: %+v, %v; want max_id 501", created, err)
	}
	c.Add(reserve(t, s, "order", 1).Range)
	if _, err := c.Check(); err != nil {
		t.Error(err)
	}
}

// TestCreateAtOnce lets exactly one handle create a tag.
func TestCreateAtOnce(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	var stores []*Store
	for range 4 {
		stores = append(stores, newStore(t, dsn))
	}
	ctx := within(t)
	for i := range 10 {
		tag := "order" + string(rune('a'+i))
		var won atomic.Int64
		var together sync.WaitGroup
		for j, s := range stores {
			together.Go(func() {
				created, err := s.Create(ctx, allocator.Tag{Name: tag, MaxID: int64(j)*100 + 1, Step: 10})
				switch {
				case err == nil && created.MaxID == int64(j)*100+1:
					won.Add(1)
				case !errors.Is(err, allocator.ErrExists):
					t.Errorf("Create: %+v, %v", created, err)
				}
			})
		}
		together.Wait()
		if won.Load() != 1 {
			t.Errorf("%d handles created %s", won.Load(), tag)
		}
	}
}

// TestChangesBesideReserve moves max_id, changes the step, deletes and creates
// while others reserve: no ID comes twice.
func TestChangesBesideReserve(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	s := newStore(t, dsn)
	createTag(t, s, "order", 1, 10)
	var c allocatortest.Checker
	var together sync.WaitGroup
	var over atomic.Bool
	ctx := within(t)
	for range 3 {
		s := newStore(t, dsn)
		together.Go(func() {
			last := int64(0)
			for !over.Load() {
				g, err := s.Reserve(ctx, "order", 1, 1)
				if errors.Is(err, allocator.ErrConflict) || errors.Is(err, allocator.ErrUnknownTag) {
					continue
				}
				if err != nil || g.First <= last {
					t.Errorf("Reserve after %d: %v, %v", last, g.Range, err)
					return
				}
				last = g.Last
				c.Add(g.Range)
			}
		})
	}
	for i := range 25 {
		step := int64(i%7 + 1)
		if _, err := s.Update(ctx, "order", allocator.Change{Step: &step}); err != nil {
			t.Errorf("Update: %v", err)
		}
		to := get(t, s, "order").MaxID
		if _, err := s.Update(ctx, "order", allocator.Change{MaxID: &to}); err != nil && !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("Update: %v", err)
		}
		if i%5 == 4 {
			tomb := remove(t, s, "order")
			if tag, err := s.Create(ctx, allocator.Tag{Name: "order", MaxID: 1, Step: 3}); err != nil || tag.MaxID != tomb.MaxID {
				t.Errorf("Create after %+v: %+v, %v", tomb, tag, err)
			}
		}
	}
	over.Store(true)
	together.Wait()
	ids, err := c.Check()
	if err != nil {
		t.Error(err)
	}
	if max := maxID(t, dsn, "order"); ids > max-1 {
		t.Errorf("%d IDs were handed out, and max_id is %d", ids, max)
	}
}

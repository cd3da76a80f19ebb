package schema

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/tests/kit"
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

// TestDescriptionColumn has a column that takes less than ours, or none.
func TestDescriptionColumn(t *testing.T) {
	t.Parallel()
	for text, columns := range map[string][]string{"täglich 日本語": {"", "desc"}, strings.Repeat("x", 257): {"desc"}} {
		for _, column := range columns {
			dsn := leafDatabase(t, column, "latin1_swedish_ci")
			s := newStore(t, dsn)
			_, err := s.Create(within(t), allocator.Tag{Name: "order", MaxID: 1, Step: 10, Description: text})
			wantError(t, "Create", err, allocator.ErrBadValue)
			_, err = s.Get(within(t), "order")
			wantError(t, "Get of what was not created", err, allocator.ErrUnknownTag)
			createTag(t, s, "order", 1, 10)
			step, max := int64(20), int64(1000)
			_, err = s.Update(within(t), "order", allocator.Change{Step: &step, MaxID: &max, Description: &text})
			wantError(t, "Update", err, allocator.ErrBadValue)
			if column == "" && (err == nil || !strings.Contains(err.Error(),
				"ALTER TABLE leaf_alloc ADD description")) {
				t.Errorf("Update does not say what to do: %v", err)
			}
			if tag := get(t, s, "order"); tag.Step != 10 || tag.MaxID != 1 || s.Err() != nil {
				t.Errorf("half of an Update was done: %+v; a bad value is no outage: %v", tag, s.Err())
			}
		}
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
	if tomb := remove(t, s, "order"); tomb.Name != "order" || !tomb.Deleted || tomb.MaxID != 501 || tomb.Step != 10 {
		t.Errorf("Delete: %+v", tomb)
	}
	_, err := s.Get(within(t), "order")
	wantError(t, "Get", err, allocator.ErrDeleted)

	// By plain SQL a row may begin anywhere; that it was further stays noted.
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 0, 10)")
	if tag := get(t, s, "order"); tag.MaxID != 1 || tag.Floor != 501 || tag.Deleted {
		t.Errorf("inserted by SQL: %+v", tag)
	}
	if tags, err := s.List(within(t), allocator.Query{Limit: 10}); err != nil || len(tags) != 2 ||
		tags[1].Floor != 501 || tags[0].Floor != 0 {
		t.Errorf("List: %+v, %v", tags, err)
	}
	_, err = s.Reserve(within(t), "order", 1, 501)
	if moved, ok := errors.AsType[*allocator.AdvancedError](err); !ok || *moved != (allocator.AdvancedError{Tag: "order", Got: 1, Seen: 501}) {
		t.Errorf("Reserve of a row that is below what was handed out: %v", err)
	}
	if max := maxID(t, dsn, "order"); max != 501+raiseRoom*10 || s.Err() != nil {
		t.Errorf("max_id is %d; it is no outage: %v", max, s.Err())
	}

	// A row that vanished by plain SQL leaves the floor at the least.
	setMaxID(t, s, "order", 7000)
	execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag = 'order'")
	_, err = s.Get(within(t), "order")
	if !errors.Is(err, allocator.ErrUnknownTag) || errors.Is(err, allocator.ErrDeleted) {
		t.Errorf("Get of a row that somebody removed: %v", err)
	}
	for i, c := range []struct{ maxID, want int64 }{{1, 7000}, {7, 7000}, {9000, 9000}} {
		tag, err := s.Create(within(t), allocator.Tag{Name: "order", MaxID: c.maxID, Step: 10})
		if err != nil || tag.MaxID != c.want || tag.Floor > tag.MaxID || tag.Floor < 7000 || tag.Deleted {
			t.Errorf("Create %d: %+v, %v; want max_id %d", i, tag, err, c.want)
		}
		if tomb := remove(t, s, "order"); tomb.MaxID != c.want {
			t.Errorf("Delete: %+v", tomb)
		}
	}
	if tag := get(t, s, "mail"); tag.MaxID != 1 || tag.Floor != 0 {
		t.Errorf("another tag was changed: %+v", tag)
	}
}

// TestMarksAreApart notes of each tag what is its own, also where names differ
// only in letters' case.
func TestMarksAreApart(t *testing.T) {
	t.Parallel()
	s := newStore(t, kit.NewDatabase(t))
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
	p.OnRequest(func(data []byte) kit.Action {
		if bytes.Contains(data, []byte("INSERT INTO `leaf_alloc`")) {
			once.Do(func() { // only now the row is inserted
				createTag(t, other, "order", 1, 10)
				c.Add(reserve(t, other, "order", 500).Range)
				remove(t, other, "order")
			})
		}
		return kit.Forward
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

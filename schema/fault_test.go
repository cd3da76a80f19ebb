package schema

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestLostStatements breaks the connection at each statement of each write,
// once before the server has it and once after it has done it. Whatever the
// caller was told, no ID may come twice, and no change may be done by half.
func TestLostStatements(t *testing.T) {
	t.Parallel()
	step, max, text := int64(20), int64(5000), "changed"
	for _, op := range []struct {
		name string
		run  func(tb testing.TB, s *Store) (allocator.Range, error)
		done func(string) bool // by what another connection sees
	}{
		{"Reserve", func(tb testing.TB, s *Store) (allocator.Range, error) {
			g, err := s.Reserve(within(tb), "order", 1, 1)
			return g.Range, err
		}, func(row string) bool { return strings.Contains(row, "{21 true} {10 true}") }},
		{"Create", func(tb testing.TB, s *Store) (allocator.Range, error) {
			_, err := s.Create(within(tb), allocator.Tag{Name: "mail", MaxID: 1, Step: 10, Description: text})
			return allocator.Range{}, err
		}, func(row string) bool { return strings.Contains(row, "{mail true} {501 true} {10 true} {changed true}") }},
		{"Update", func(tb testing.TB, s *Store) (allocator.Range, error) {
			_, err := s.Update(within(tb), "order", allocator.Change{Step: &step, MaxID: &max, Description: &text})
			return allocator.Range{}, err
		}, func(row string) bool {
			return strings.Contains(row, "{order true} {5000 true} {20 true} {changed true}") && strings.Contains(row, "[{order true} {5000 true} {0 true}]")
		}},
		{"Delete", func(tb testing.TB, s *Store) (allocator.Range, error) {
			_, err := s.Delete(within(tb), "order", 1)
			return allocator.Range{}, err
		}, func(row string) bool {
			return !strings.Contains(row, "{10 true}") && strings.Contains(row, "[{order true} {0 true} {11 true}]")
		}},
	} {
		for action, what := range map[kit.Action]string{kit.CutBefore: "before", kit.CutAfter: "after"} {
			t.Run(op.name+" "+what, func(t *testing.T) {
				t.Parallel()
				dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
				p, slow := through(t, dsn)
				s := newStore(t, slow)
				rows := func() string {
					return answers(t, dsn, "SELECT biz_tag, max_id, step, description FROM leaf_alloc ORDER BY 1") +
						answers(t, dsn, "SELECT biz_tag, floor, max_id FROM leaf_mark ORDER BY 1")
				}
				last := ""
				for cut := 1; ; cut++ {
					p.OnRequest(nil)
					execute(t, dsn, "DELETE FROM leaf_alloc", "DELETE FROM leaf_mark",
						"INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10)", "INSERT INTO leaf_mark (biz_tag, max_id) VALUES ('mail', 501)")
					var c allocatortest.Checker
					get(t, s, "order")
					s.remember("order", 10)
					c.Add(reserve(t, s, "order", 1).Range) // on a connection that the next statements use
					before := rows()
					n, at := 0, ""
					var mu sync.Mutex
					p.OnRequest(func(data []byte) kit.Action {
						mu.Lock()
						defer mu.Unlock()
						if n++; n == cut {
							at = string(data[5:min(len(data), 25)])
							return action
						}
						return kit.Forward
					})
					r, err := op.run(t, s)
					mu.Lock()
					statement := at
					mu.Unlock()
					after := rows()
					if statement == "" { // it has no more of them
						if err != nil || !op.done(after) {
							t.Errorf("with no fault: %v; the database has\n%s", err, after)
						}
						if !strings.HasPrefix(last, map[bool]string{true: "UPDATE", false: "COMMIT"}[op.name == "Reserve"]) {
							t.Errorf("the last statement was %q", last)
						}
						return
					}
					last = statement
					wantError(t, fmt.Sprintf("%s broken at %q", op.name, statement), err, allocator.ErrUnavailable)
					if uncertain := errors.Is(err, allocator.ErrUncertain); uncertain != (statement == "COMMIT") {
						t.Errorf("%s broken at %q is uncertain: %v: %v", op.name, statement, uncertain, err)
					}
					// Only where the last statement was done all of it is.
					lasting := action == kit.CutAfter && (statement == "COMMIT" || op.name == "Reserve")
					if lasting != op.done(after) || !lasting && after != before {
						t.Errorf("%s broken %s %q; the database has\n%swhere before it had\n%s", op.name, what, statement, after, before)
					}
					if r != (allocator.Range{}) {
						t.Errorf("a range with an error: %v", r)
					}

					// It works again by itself.
					p.OnRequest(nil)
					if _, err := s.Create(within(t), allocator.Tag{Name: "order", MaxID: 1, Step: 10}); err != nil && !errors.Is(err, allocator.ErrExists) {
						t.Errorf("Create after that: %v", err)
					}
					for range 2 {
						g, err := s.Reserve(within(t), "order", 1, 1)
						if errors.Is(err, allocator.ErrConflict) { // the step was changed without its knowledge
							g, err = s.Reserve(within(t), "order", 1, 1)
						}
						if err != nil {
							t.Fatalf("Reserve after that: %v", err)
						}
						c.Add(g.Range)
						if max := maxID(t, dsn, "order"); g.Last+1 != max {
							t.Errorf("%v was reserved, and max_id is %d", g.Range, max)
						}
					}
					if _, err := c.Check(); err != nil {
						t.Error(err)
					}
					if s.Err() != nil {
						t.Errorf("Err: %v", s.Err())
					}
				}
			})
		}
	}
}

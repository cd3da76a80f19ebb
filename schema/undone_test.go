package schema

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// lock runs statements in a transaction that stays open until the test ends.
func lock(tb testing.TB, dsn string, statements ...string) *sql.Tx {
	tb.Helper()
	tx, err := direct(tb, dsn).BeginTx(within(tb), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { tx.Rollback() })
	for _, s := range statements {
		if _, err := tx.ExecContext(within(tb), s); err != nil {
			tb.Fatalf("%s: %v", s, err)
		}
	}
	return tx
}

// lockWait is where the server's status names a connection that waits for a row.
var lockWait = regexp.MustCompile(`LOCK WAIT [^\n]*\n(?:[^\n]*\n)??MariaDB thread id (\d+)`)

// awaitLockWait waits until a statement on the test's database waits for a row.
// The tables that tell it too are not read anew for whoever asks often.
func awaitLockWait(tb testing.TB, dsn string) {
	tb.Helper()
	db := direct(tb, dsn)
	testkit.Eventually(tb, "a statement that waits for a row", func() bool {
		var kind, name, status string
		if err := db.QueryRowContext(within(tb), "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status); err != nil {
			tb.Fatal(err)
		}
		for _, match := range lockWait.FindAllStringSubmatch(status, -1) {
			var ours int
			err := db.QueryRowContext(within(tb), "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ? AND db = DATABASE()", match[1]).Scan(&ours)
			if err != nil {
				tb.Fatal(err)
			}
			if ours > 0 {
				return true
			}
		}
		return false
	})
}

// TestLocked works on a row that somebody else has locked: that tag waits, its error says why, and no ID of it is lost.
// Others flow.
func TestLocked(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "", "utf8mb4_general_ci")
	s := newDatabase(t, dsn)
	insert(t, s, "order", 1, 10)
	insert(t, s, "mail", 1, 10)
	tx := lock(t, dsn, "SELECT * FROM leaf_alloc WHERE biz_tag = 'order' FOR UPDATE")
	ctx, ended := within(t), make(chan error, 1)
	for what, call := range map[string]func() error{
		"Advance": func() error { _, _, err := s.Advance(ctx, "order", 10, 10, 1); return err },
		"Peek":    func() error { _, err := s.Peek(ctx, "order"); return err }, // a replica would answer without the lock
	} {
		go func() { ended <- call() }()
		awaitLockWait(t, dsn)
		for range 40 {
			advance(t, s, "mail", 1, 1)
		}
		err := <-ended
		wantError(t, what, err, allocator.ErrLocked)
		if !strings.Contains(err.Error(), "in MySQL a transaction holds the row of order") || s.Err() != nil {
			t.Errorf("%s says %v, and of the server %v", what, err, s.Err())
		}
	}
	if max := maxID(t, dsn, "order"); max != 1 {
		t.Errorf("max_id is %d after an Advance that was given up", max)
	}
	// A write does wait, as often as it takes.
	go func() { ended <- s.Remove(ctx, "order", 1, "") }()
	awaitLockWait(t, dsn)
	tx.Rollback()
	if err := <-ended; err != nil {
		t.Errorf("Remove: %v", err)
	}
}

// TestDeadlocked makes the server undo a write, which is then repeated.
func TestDeadlocked(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "", "utf8mb4_general_ci")
	s := newDatabase(t, dsn)
	insert(t, s, "order", 10, 10)
	// What has changed more is what the server keeps when it finds a deadlock.
	execute(t, dsn, "CREATE TABLE ballast (n int PRIMARY KEY)")
	tx := lock(t, dsn, "INSERT INTO ballast SELECT seq FROM seq_1_to_500",
		"SELECT * FROM leaf_mark WHERE biz_tag = 'order' FOR UPDATE")
	ctx, ended := within(t), make(chan error, 1)
	go func() { ended <- s.Remove(ctx, "order", 5000, allocator.KindTrend) }()
	awaitLockWait(t, dsn)
	if _, err := tx.ExecContext(ctx, "SELECT * FROM leaf_alloc WHERE biz_tag = 'order' FOR UPDATE"); err != nil {
		t.Fatalf("the test's own transaction was undone: %v", err)
	}
	tx.Rollback()
	if err := <-ended; err != nil || s.Err() != nil {
		t.Errorf("Remove: %v; a deadlock is no outage: %v", err, s.Err())
	}
	wantRow(t, s, allocator.Row{Name: "order", Mark: 5000, Kind: allocator.KindTrend})
}

// TestBroken breaks the connection at each statement of each write, once before the server has it and once after it has
// done it. Whatever the caller learnt, no ID may come twice, and nothing may be done by half.
func TestBroken(t *testing.T) {
	t.Parallel()
	step, text := int64(20), "changed"
	for _, op := range []struct {
		name string
		run  func(tb testing.TB, s *Database) error
		last string // statement, after which all of it is done
		done string // what the database has then
	}{
		{"Advance", func(tb testing.TB, s *Database) error {
			r, _, err := s.Advance(within(tb), "order", 1, 10, 1)
			if err != nil && r != (allocator.Range{}) {
				tb.Errorf("a range with an error: %v", r)
			}
			return err
		}, "UPDATE", "{order true} {21 true} {10 true}"},
		{"Advance from above", func(tb testing.TB, s *Database) error {
			_, _, err := s.Advance(within(tb), "order", 1, 10, 1001)
			if _, moved := errors.AsType[*allocator.AdvancedError](err); moved {
				return nil
			}
			return err
		}, "COMMIT", "{order true} {1081 true} {10 true}"},
		{"Add", func(tb testing.TB, s *Database) error {
			return s.Add(within(tb), allocator.Row{Name: "mail", MaxID: 501, Step: 10, Description: text})
		}, "INSERT", "{mail true} {501 true} {10 true} {changed true}"},
		{"Raise", func(tb testing.TB, s *Database) error { return s.Raise(within(tb), "order", 5000, &step, &text) },
			"UPDATE", "{order true} {5000 true} {20 true} {changed true}"},
		{"Mark", func(tb testing.TB, s *Database) error { return s.Mark(within(tb), "mail", 700, "strict") },
			"INSERT", "{mail true} {700 true} {strict true}"},
		{"Remove", func(tb testing.TB, s *Database) error { return s.Remove(within(tb), "order", 5, "trend") },
			"COMMIT", "\n[{mail true} {501 true} {trend true}]\n[{order true} {11 true} {trend true}]\n"},
	} {
		for action, what := range map[kit.Action]string{kit.CutBefore: "before", kit.CutAfter: "after"} {
			t.Run(op.name+" "+what, func(t *testing.T) {
				t.Parallel()
				dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
				p, slow := through(t, dsn)
				s := newDatabase(t, slow)
				all := func() string {
					return answers(t, dsn, "SELECT biz_tag, max_id, step, description FROM leaf_alloc ORDER BY 1") + "\n" +
						answers(t, dsn, "SELECT biz_tag, mark, kind FROM leaf_mark ORDER BY 1")
				}
				for cut := 1; ; cut++ {
					p.OnRequest(nil)
					execute(t, dsn, "DELETE FROM leaf_alloc", "DELETE FROM leaf_mark",
						"INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10)",
						"INSERT INTO leaf_mark (biz_tag, mark, kind) VALUES ('mail', 501, 'trend')")
					var c allocatortest.Checker
					c.Add(advance(t, s, "order", 10, 1)) // on a connection that the next statements use
					before := all()
					var mu sync.Mutex
					n, at := 0, ""
					p.OnRequest(func(data []byte) kit.Action {
						mu.Lock()
						defer mu.Unlock()
						if n++; n == cut {
							at = string(data[5:min(len(data), 25)])
							return action
						}
						return kit.Forward
					})
					err := op.run(t, s)
					mu.Lock()
					statement := at
					mu.Unlock()
					p.OnRequest(nil)
					after := all()
					if statement == "" { // it has no more of them
						if err != nil || !strings.Contains(after, op.done) {
							t.Errorf("with no fault: %v; the database has\n%s", err, after)
						}
						return
					}
					wantError(t, fmt.Sprintf("%s broken at %q", op.name, statement), err, allocator.ErrUnavailable)
					lasting := action == kit.CutAfter && strings.HasPrefix(statement, op.last)
					if lasting != strings.Contains(after, op.done) || !lasting && after != before {
						t.Errorf("%s broken %s %q; the database has\n%swhere before it had\n%s", op.name, what, statement, after, before)
					}

					// It works again by itself.
					if err := s.Add(within(t), allocator.Row{Name: "order", MaxID: 11, Step: 10}); err != nil && !errors.Is(err, allocator.ErrExists) {
						t.Errorf("Add after that: %v", err)
					}
					for range 2 {
						r := advance(t, s, "order", 1, 1)
						if c.Add(r); r.Last+1 != maxID(t, dsn, "order") {
							t.Errorf("%v was taken, and max_id is %d", r, maxID(t, dsn, "order"))
						}
					}
					if _, err := c.Check(); err != nil || s.Err() != nil {
						t.Errorf("%v, Err: %v", err, s.Err())
					}
				}
			})
		}
	}
}

package schema

import (
	"cmp"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/testkit"
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

// TestLockedRow reserves of a row that somebody else has locked: that tag waits,
// is told so, and is lost to nobody; others flow.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "", "utf8mb4_general_ci")
	s := newStore(t, dsn)
	createTag(t, s, "order", 1, 10)
	createTag(t, s, "mail", 1, 10)
	tx := lock(t, dsn, "SELECT * FROM leaf_alloc WHERE biz_tag = 'order' FOR UPDATE")
	ctx, ended := within(t), make(chan error, 1)
	go func() {
		_, err := s.Reserve(ctx, "order", 1, 1)
		ended <- err
	}()
	awaitLockWait(t, dsn)
	for range 40 {
		reserve(t, s, "mail", 1)
	}
	err := <-ended
	wantError(t, "Reserve of a row that stays locked", err, allocator.ErrLocked)
	if !strings.Contains(err.Error(), "in MySQL a transaction holds the row of order") || s.Err() != nil {
		t.Errorf("it says %v, and of the server %v", err, s.Err())
	}
	if max := maxID(t, dsn, "order"); max != 1 {
		t.Errorf("max_id is %d after a Reserve that was given up", max)
	}

	// A change does wait, as often as it takes.
	go func() {
		_, err := s.Delete(ctx, "order", 1)
		ended <- err
	}()
	awaitLockWait(t, dsn)
	tx.Rollback()
	if err := <-ended; err != nil {
		t.Errorf("Delete: %v", err)
	}
}

// deadlocks is how many the server has found.
func deadlocks(tb testing.TB, dsn string) int {
	tb.Helper()
	return ask[int](tb, dsn, "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_deadlocks'")
}

// heavy makes a transaction the one that the server keeps when it finds a deadlock.
const heavy = "INSERT INTO ballast SELECT seq FROM seq_1_to_500"

// TestDeadlock makes the server undo what the store does.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "", "utf8mb4_general_ci")
	execute(t, dsn, "CREATE TABLE ballast (n int PRIMARY KEY)", "CREATE TABLE audit (n bigint PRIMARY KEY, hits bigint)", "INSERT INTO audit VALUES (1, 0)")
	s := newStore(t, dsn)
	createTag(t, s, "order", 1, 10)
	reserve(t, s, "order", 1)
	// It is what makes the statement lock rows of two tables.
	execute(t, dsn, "CREATE TRIGGER after_it AFTER UPDATE ON leaf_alloc FOR EACH ROW UPDATE audit SET hits = hits + 1")
	ctx := within(t)

	for _, c := range []struct {
		name string
		run  func() error
		want error
		max  int64 // afterwards; 0: as it was
	}{
		// What is next must be decided by what the caller has seen by then.
		{"Reserve", func() error { _, err := s.Reserve(ctx, "order", 1, 1); return err }, allocator.ErrConflict, 0},
		{"Update", func() error {
			max := int64(5000)
			_, err := s.Update(ctx, "order", allocator.Change{MaxID: &max})
			return err
		}, nil, 5000},
	} {
		was := maxID(t, dsn, "order")
		for try, found := 1, false; !found; try++ {
			before := deadlocks(t, dsn)
			tx := lock(t, dsn, heavy, "SELECT * FROM audit FOR UPDATE")
			ended := make(chan error, 1)
			go func() { ended <- c.run() }()
			awaitLockWait(t, dsn)
			if _, err := tx.ExecContext(ctx, "SELECT * FROM leaf_alloc WHERE biz_tag = 'order' FOR UPDATE"); err != nil {
				t.Fatalf("the test's own transaction was undone: %v", err)
			}
			found = deadlocks(t, dsn) > before
			tx.Rollback()
			if err := <-ended; (c.want == nil) != (err == nil) {
				t.Errorf("%s: %v", c.name, err)
			} else if c.want != nil {
				wantError(t, c.name, err, c.want)
			}
			if !found && try == 10 { // a slow test may find that the statement had waited too long
				t.Fatalf("%s met no deadlock", c.name)
			}
		}
		if max := maxID(t, dsn, "order"); max != cmp.Or(c.max, was) {
			t.Errorf("max_id after %s is %d, it was %d", c.name, max, was)
		}
	}
	execute(t, dsn, "DROP TRIGGER after_it")
	if g := reserve(t, s, "order", 1); g.First != 5000 {
		t.Errorf("the next range is %v", g.Range)
	}
	if s.Err() != nil {
		t.Errorf("a deadlock is no outage: %v", s.Err())
	}
}

// TestUndone knows the errors after which nothing has happened, and no others.
func TestUndone(t *testing.T) {
	for n, want := range map[uint16]bool{
		1213: true, 1205: true, 1020: true, 3101: true,
		1062: false, 1290: false, 2013: false, 1105: false, 1317: false, 1180: false,
	} {
		err := fmt.Errorf("bun: %w", &mysql.MySQLError{Number: n})
		if undone(err) != want {
			t.Errorf("undone(%v) = %v", err, !want)
		}
	}
	if undone(mysql.ErrInvalidConn) || undone(nil) {
		t.Errorf("a connection that broke leaves nothing undone for sure")
	}
}

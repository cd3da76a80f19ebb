package schema

import (
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

// TestDeadlock makes the server undo a change, which is then repeated.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "", "utf8mb4_general_ci")
	s := newStore(t, dsn)
	createTag(t, s, "order", 10, 10)
	// What has changed more is what the server keeps when it finds a deadlock.
	execute(t, dsn, "CREATE TABLE ballast (n int PRIMARY KEY)")
	tx := lock(t, dsn, "INSERT INTO ballast SELECT seq FROM seq_1_to_500",
		"SELECT * FROM leaf_mark WHERE biz_tag = 'order' FOR UPDATE")
	ctx, max, ended := within(t), int64(5000), make(chan error, 1)
	go func() {
		_, err := s.Update(ctx, "order", allocator.Change{MaxID: &max})
		ended <- err
	}()
	awaitLockWait(t, dsn)
	if _, err := tx.ExecContext(ctx, "SELECT * FROM leaf_alloc WHERE biz_tag = 'order' FOR UPDATE"); err != nil {
		t.Fatalf("the test's own transaction was undone: %v", err)
	}
	tx.Rollback()
	if err := <-ended; err != nil || maxID(t, dsn, "order") != max || s.Err() != nil {
		t.Errorf("Update: %v; max_id is %d; a deadlock is no outage: %v", err, maxID(t, dsn, "order"), s.Err())
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

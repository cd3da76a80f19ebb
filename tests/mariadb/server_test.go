package mariadb

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leafbus/leafbus/tests/daemon"
)

// The tests of crashes rest on this: a killed server keeps what it committed, and a frozen one
// answers nothing.
func TestServer(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { goleak.VerifyNone(t) })
	// A test's folder can have a longer path than a socket may have.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	must(os.Mkdir(dir, 0o700))
	s, err := Start(dir, "--innodb-lock-wait-timeout=7")
	must(err)
	t.Cleanup(func() { must(s.Close()) })
	dsn, err := s.Database()
	must(err)
	db, err := open(dsn)
	must(err)
	t.Cleanup(func() { db.Close() })
	for _, statement := range []string{"CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	// Each commit is on the disk. Servers that shared a temporary folder would remove each other's tables.
	var lock, flush int
	var temp string
	must(db.QueryRowContext(t.Context(), "SELECT @@innodb_lock_wait_timeout, @@innodb_flush_log_at_trx_commit, @@tmpdir").Scan(&lock, &flush, &temp))
	if lock != 7 || flush != 1 || temp != s.temp() {
		t.Errorf("lock wait timeout %d, flush %d, temporary tables in %s", lock, flush, temp)
	}

	must(s.Kill())
	l, err := net.Listen("tcp", s.Addr())
	must(err)
	if err := s.Run(); !errors.Is(err, daemon.ErrPortTaken) {
		t.Errorf("it ran on a taken port: %v", err)
	}
	l.Close()
	must(s.Run())
	var rows int
	must(db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t").Scan(&rows))
	if rows != 1 {
		t.Errorf("%d rows after a kill", rows)
	}
	must(s.Freeze())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := db.ExecContext(ctx, "DO 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server answers: %v", err)
	}
	must(s.Thaw())
	must(db.PingContext(t.Context()))
}

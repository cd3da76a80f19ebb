package mariadb

import (
	"context"
	"database/sql"
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

func TestMain(m *testing.M) {
	daemon.Orphan(func(dir string) (string, error) {
		s, err := Start(dir)
		if err != nil {
			return "", err
		}
		return s.Addr(), nil
	})
	os.Exit(Main(m))
}

// connect opens a database until the test ends.
func connect(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func do(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// rows counts the rows of the table t.
func rows(t *testing.T, db *sql.DB) int {
	t.Helper()
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestServerKeepsWhatItCommitted(t *testing.T) {
	others := goleak.IgnoreCurrent() // the shared server may run
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	// A folder of tests can have a longer path than a socket may.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	must(t, os.Mkdir(dir, 0o700))
	s, err := Start(dir)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	dsn, err := s.Database()
	must(t, err)
	db := connect(t, dsn)
	do(t, db, "CREATE TABLE t (id INT PRIMARY KEY)")
	do(t, db, "INSERT INTO t VALUES (1)")
	addr := s.Addr()

	for name, end := range map[string]func() error{"Kill": s.Kill, "Stop": s.Stop} {
		must(t, end())
		if err := db.PingContext(t.Context()); err == nil {
			t.Fatalf("%s: the server still answers", name)
		}
		if err := end(); err == nil {
			t.Errorf("%s: no error where the server does not run", name)
		}
		must(t, s.Run())
		if got := rows(t, db); got != 1 {
			t.Errorf("%s: %d rows afterwards", name, got)
		}
	}
	if s.Addr() != addr {
		t.Errorf("the address changed from %s to %s", addr, s.Addr())
	}
	if err := s.Run(); err == nil {
		t.Error("a second server runs with the same data")
	}

	must(t, s.Freeze())
	must(t, s.Freeze())
	must(t, s.Close())
	must(t, s.Close())
}

func TestFreeze(t *testing.T) {
	s := New(t)
	db := connect(t, s.DSN("mysql"))
	must(t, db.PingContext(t.Context()))
	must(t, s.Freeze())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := db.ExecContext(ctx, "DO 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server answers: %v", err)
	}
	if err := s.Stop(); err == nil {
		t.Error("a frozen server was stopped")
	}
	must(t, s.Thaw())
	do(t, db, "DO 1")
}

func TestOptions(t *testing.T) {
	s := New(t, "--innodb-lock-wait-timeout=7")
	for _, want := range []struct{ lock, flush int }{{7, 1}, {8, 1}} {
		if want.lock == 8 {
			must(t, s.Kill())
			must(t, s.Run("--innodb-lock-wait-timeout=8"))
		}
		var lock, flush int
		err := connect(t, s.DSN("")).QueryRowContext(t.Context(),
			"SELECT @@innodb_lock_wait_timeout, @@innodb_flush_log_at_trx_commit").Scan(&lock, &flush)
		must(t, err)
		if lock != want.lock || flush != want.flush {
			t.Errorf("lock wait timeout %d, flush %d; want %+v", lock, flush, want)
		}
	}
}

// Servers that share the system's folder remove each other's tables there.
func TestOwnTemporaryFolder(t *testing.T) {
	s := Shared(t)
	var dir string
	must(t, connect(t, s.DSN("")).QueryRowContext(t.Context(), "SELECT @@tmpdir").Scan(&dir))
	if dir != s.temp() {
		t.Errorf("temporary tables are in %s, want %s", dir, s.temp())
	}
}

func TestStartSaysWhy(t *testing.T) {
	s, err := Start(t.TempDir(), "--no-such-option")
	if err == nil {
		_ = s.Close()
		t.Fatal("started")
	}
	if !strings.Contains(err.Error(), "unknown option '--no-such-option'") {
		t.Errorf("the log is missing in: %v", err)
	}
}

func TestPortTaken(t *testing.T) {
	s := New(t)
	must(t, s.Kill())
	l, err := net.Listen("tcp", s.Addr())
	must(t, err)
	defer l.Close()
	if err := s.Run(); !errors.Is(err, daemon.ErrPortTaken) {
		t.Errorf("ran on a taken port: %v", err)
	}
}

func TestMissingProgram(t *testing.T) {
	_, err := command("mariadbd-that-nobody-has")
	if err == nil || !strings.Contains(err.Error(), "make test installs it") {
		t.Errorf("want what to do, got: %v", err)
	}
}

func TestNewDatabase(t *testing.T) {
	var dropped *sql.DB
	t.Run("one", func(t *testing.T) {
		one, other := connect(t, NewDatabase(t)), connect(t, NewDatabase(t))
		do(t, one, "CREATE TABLE t (id INT)")
		do(t, other, "CREATE TABLE t (id INT)")
		do(t, one, "INSERT INTO t VALUES (1)")
		if rows(t, one) != 1 || rows(t, other) != 0 {
			t.Error("two databases are one")
		}
		var name string
		must(t, one.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name))
		dropped = one
	})
	if err := dropped.PingContext(t.Context()); err == nil {
		t.Error("the database is still there")
	}
}

func TestNewDatabaseElsewhere(t *testing.T) {
	t.Setenv(serverEnv, Shared(t).DSN("mysql")+"?parseTime=true")
	dsn := NewDatabase(t)
	if !strings.HasSuffix(dsn, "?parseTime=true") {
		t.Errorf("%s is not on the server of %s", dsn, serverEnv)
	}
	must(t, connect(t, dsn).PingContext(t.Context()))
}

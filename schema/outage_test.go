package schema

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestServerSettings has a server that is configured against us.
func TestServerSettings(t *testing.T) {
	t.Parallel()
	server := kit.NewMariaDB(t, "--init-connect=SET autocommit=0, sql_mode='', unique_checks=0", "--completion-type=1", "--sql-mode=ORACLE",
		"--innodb-flush-log-at-trx-commit=2", "--default-time-zone=+08:00", "--character-set-server=latin1", "--transaction-isolation=SERIALIZABLE",
		"--group-concat-max-len=7", "--lower-case-table-names=1", "--innodb-lock-wait-timeout=1000",
		"--innodb-snapshot-isolation=ON", "--log-bin=binlog", "--binlog-format=STATEMENT")
	dsn, err := server.Database()
	if err != nil {
		t.Fatal(err)
	}
	execute(t, dsn, "SET sql_mode = ''", leafTable("description", "utf8mb4_general_ci"))
	app := account(t, dsn, "ALL") // init_connect is not for those who may do everything
	if got := ask[int](t, app, "SELECT @@autocommit"); got != 0 {
		t.Fatalf("the server's init_connect does nothing: autocommit is %d", got)
	}
	behaves(t, dsn, app)

	// Nor may it begin a transaction.
	execute(t, dsn, "SET GLOBAL init_connect = 'START TRANSACTION'", "DROP TABLE leaf_alloc, leaf_mark, leaf_installation",
		leafTable("description", "utf8mb4_general_ci"))
	behaves(t, dsn, app)

	var log notes
	s := prepare(t, app, &log)
	if err := s.Open(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"innodb_flush_log_at_trx_commit=2", "sync_binlog=0"} {
		if !strings.Contains(log.String(), setting) {
			t.Errorf("a server that syncs too little is not named by %s: %s", setting, log.String())
		}
	}

	newDatabase(t, app, inTable("Leaf_Alloc")) // the same table to this server
	readOnly(t, dsn, app)
}

// readOnly switches a server to read-only, as a failover does, and back.
func readOnly(t *testing.T, root, app string) {
	t.Helper()
	says := func(what string, err error) {
		t.Helper()
		wantError(t, what, err, allocator.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), "the MySQL server is read-only") {
			t.Errorf("%s does not say why: %v", what, err)
		}
	}
	s, rootStore := newDatabase(t, app), newDatabase(t, root)
	late, byRoot := prepare(t, app, io.Discard), prepare(t, root, io.Discard)
	insert(t, s, "readonly", 1, 10)
	advance(t, s, "readonly", 1, 1)
	execute(t, root, "SET GLOBAL read_only = 1")
	for range 3 {
		_, _, err := s.Advance(within(t), "readonly", 1, 10, 1)
		says("Advance", err)
		says("Err", s.Err())
		says("Add", s.Add(within(t), allocator.Row{Name: "new", MaxID: 1, Step: 1}))
		_, err = s.Peek(within(t), "readonly")
		says("Peek", err)
		says("Open", late.Open(within(t)))
		says("Open with an account that may write nevertheless", byRoot.Open(within(t)))
	}
	// An account with all rights could go on writing on the connections that it
	// has. The next Check ends that.
	says("Check", rootStore.Check(within(t)))
	says("Err", rootStore.Err())
	_, _, err := rootStore.Advance(within(t), "readonly", 1, 10, 1)
	says("Advance with an account that may write nevertheless", err)
	execute(t, root, "SET GLOBAL read_only = 0")
	if r := advance(t, s, "readonly", 1, 1); r.First != 11 {
		t.Errorf("writable again: %v", r)
	}
	if s.Err() != nil {
		t.Errorf("Err: %v", s.Err())
	}
	for _, s := range []*Database{late, byRoot} {
		if err := s.Open(within(t)); err != nil {
			t.Errorf("Open: %v", err)
		}
		if s.Err() != nil {
			t.Errorf("Err: %v", s.Err())
		}
	}
}

// TestStepDown finds the server read-only, or out of service, under connections that are in the
// pool: the next ones must be new, for they may lead to one that works.
func TestStepDown(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	p, slow := through(t, dsn)
	s := newDatabase(t, slow)
	insert(t, s, "order", 1, 10)
	advance(t, s, "order", 1, 1)
	if n := s.pool.Stats().OpenConnections; n == 0 {
		t.Fatal("the pool is empty")
	}
	// A node that left its Galera cluster, a shutdown, a member that left its group.
	for _, n := range []uint16{1047, 1053, 3100, errOption, 1792, 1836, 1874} {
		advance(t, s, "order", 1, 1)
		err := s.explain(t.Context(), "", &mysql.MySQLError{Number: n, Message: "read only"})
		wantError(t, "explain", err, allocator.ErrUnavailable)
		if strings.Contains(err.Error(), "the MySQL server is read-only") != (n >= errOption && n != 3100) {
			t.Errorf("error %d: %v", n, err)
		}
		if n := s.pool.Stats().OpenConnections; n != 0 {
			t.Errorf("%d connections were kept", n)
		}
	}
	var fresh atomic.Bool
	p.OnRequest(func(data []byte) kit.Action {
		if bytes.Contains(data, []byte("read_only")) {
			fresh.Store(true)
		}
		return kit.Forward
	})
	if advance(t, s, "order", 1, 1); !fresh.Load() || s.pool.Stats().Idle != 1 {
		t.Error("a connection was used without a look at read_only, or none is kept any more")
	}
}

// TestSilentServer asks a server from which nothing comes any more: who asks goes on when its time is over, and the
// store goes on when the server does.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	p, slow := through(t, dsn)
	s, late := newDatabase(t, slow), prepare(t, slow, io.Discard)
	insert(t, s, "order", 1, 10)
	advance(t, s, "order", 1, 1)
	p.Hang(true)
	step := int64(20)
	for what, call := range map[string]func(context.Context) error{
		"Advance": func(ctx context.Context) error { _, _, err := s.Advance(ctx, "order", 1, 10, 1); return err },
		"Peek":    func(ctx context.Context) error { _, err := s.Peek(ctx, "order"); return err },
		"Rows":    func(ctx context.Context) error { return s.Rows(ctx, func(allocator.Row) {}) },
		"Raise":   func(ctx context.Context) error { return s.Raise(ctx, "order", 1, &step, nil) },
		"Remove":  func(ctx context.Context) error { return s.Remove(ctx, "mail", 1, "") },
		"Check":   s.Check,
		"Open":    late.Open,
		"Claim":   func(ctx context.Context) error { _, _, err := late.Claim(ctx, "mine", true); return err },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		err := call(ctx)
		cancel()
		wantError(t, what, err, allocator.ErrUnavailable)
		wantError(t, what, err, context.DeadlineExceeded)
		if err == nil || !strings.Contains(err.Error(), "MySQL did not answer in time") {
			t.Errorf("%s does not say why: %v", what, err)
		}
	}
	for _, s := range []*Database{s, late} {
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), "MySQL did not answer in time") {
			t.Errorf("Err: %v", err)
		}
	}
	p.Hang(false)
	if err := late.Open(within(t)); err != nil || late.Err() != nil {
		t.Errorf("Open: %v, %v", err, late.Err())
	}
	r := advance(t, s, "order", 1, 1)
	// What was asked meanwhile may have been done: a gap.
	if (r.First != 11 && r.First != 21) || maxID(t, dsn, "order") != r.Last+1 {
		t.Errorf("afterwards: %v, and max_id is %d", r, maxID(t, dsn, "order"))
	}
}

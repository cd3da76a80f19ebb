package schema

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestMain lets more tests run at once than there are processors: most wait for the server,
// or for a bound of the store to pass.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "12")
	os.Exit(kit.Main(m))
}

// refresh is how often the stores of these tests read the table.
const refresh = 20 * time.Millisecond

// patience is how long a test waits for what must happen.
const patience = testkit.Patience

// newStore opens a store on a database of the test.
func newStore(tb testing.TB, dsn string, changes ...func(*Config)) *Store {
	tb.Helper()
	s := prepareStore(tb, dsn, io.Discard, changes...)
	if err := s.Open(within(tb)); err != nil {
		tb.Fatalf("Open: %v", err)
	}
	return s
}

func prepareStore(tb testing.TB, dsn string, log io.Writer, changes ...func(*Config)) *Store {
	tb.Helper()
	cfg := Config{DSN: dsn, Refresh: refresh, Log: slog.New(slog.NewTextHandler(log, nil))}
	for _, change := range changes {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func within(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// notes is a log that can be read while it is written.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// direct is a pool of plain connections, which have nothing of ours.
func direct(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

// execute runs plain SQL, as an operator would.
func execute(tb testing.TB, dsn string, statements ...string) {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(within(tb), s); err != nil {
			tb.Fatalf("%s: %v", s, err)
		}
	}
}

// ask returns what a query answers with one value, as another connection sees it.
func ask[T any](tb testing.TB, dsn, query string, args ...any) (value T) {
	tb.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(within(tb), query, args...).Scan(&value); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return value
}

// maxID is the max_id of a row, as another connection sees it.
func maxID(tb testing.TB, dsn, tag string) int64 {
	tb.Helper()
	return ask[int64](tb, dsn, "SELECT max_id FROM leaf_alloc WHERE biz_tag = BINARY ?", tag)
}

// edit returns a DSN after a change.
func edit(tb testing.TB, dsn string, change func(*mysql.Config)) string {
	tb.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	change(cfg)
	return cfg.FormatDSN()
}

// through starts a proxy before the server of a DSN, and returns the DSN of
// the same database through it.
func through(tb testing.TB, dsn string) (*kit.Link, string) {
	tb.Helper()
	var p *kit.Link
	dsn = edit(tb, dsn, func(cfg *mysql.Config) {
		var err error
		if p, err = kit.StartLink(cfg.Addr); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(p.Close)
		cfg.Addr = p.Addr()
	})
	return p, dsn
}

func createTag(tb testing.TB, s allocator.Store, tag string, maxID, step int64) {
	tb.Helper()
	if _, err := s.Create(within(tb), allocator.Tag{Name: tag, MaxID: maxID, Step: step}); err != nil {
		tb.Fatalf("Create(%s): %v", tag, err)
	}
}

func reserve(tb testing.TB, s allocator.Store, tag string, n int64) allocator.Grant {
	tb.Helper()
	g, err := s.Reserve(within(tb), tag, n, 1)
	if err != nil {
		tb.Fatalf("Reserve(%s, %d): %v", tag, n, err)
	}
	return g
}

func get(tb testing.TB, s allocator.Store, tag string) allocator.Tag {
	tb.Helper()
	t, err := s.Get(within(tb), tag)
	if err != nil {
		tb.Fatalf("Get(%s): %v", tag, err)
	}
	return t
}

func wantError(tb testing.TB, what string, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: error %v, want %v", what, err, want)
	}
	// Who is told that the store is away asks again.
	if errors.Is(err, allocator.ErrUnavailable) && want != allocator.ErrUnavailable && want != context.DeadlineExceeded {
		tb.Errorf("%s: the store is not away: %v", what, err)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range allocatortest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, backend(kit.NewDatabase(t), DefaultTable))
		})
	}
}

// inTable makes a store use a table of this name.
func inTable(table string) func(*Config) { return func(cfg *Config) { cfg.Table = table } }

// backend is a database for the suite, with this table of the tags.
func backend(dsn, table string) allocatortest.Backend {
	return allocatortest.Backend{
		Open: func(tb testing.TB) allocator.Store { return newStore(tb, dsn, inTable(table)) },
		Save: func(tb testing.TB) func() { return dump(tb, dsn, table) },

		NoRules: true,
	}
}

// dump keeps a copy of the tables; the returned function puts it in their place. No reading sees them empty.
func dump(tb testing.TB, dsn, table string) (restore func()) {
	var save, load []string
	for _, t := range tables(table) {
		save = append(save, "CREATE TABLE saved_"+t.name+" LIKE "+t.name, "INSERT INTO saved_"+t.name+" SELECT * FROM "+t.name)
		load = append(load, "DELETE FROM "+t.name, "INSERT INTO "+t.name+" SELECT * FROM saved_"+t.name)
	}
	execute(tb, dsn, save...)
	return func() {
		tx, err := direct(tb, dsn).BeginTx(within(tb), nil)
		if err != nil {
			tb.Fatal(err)
		}
		for _, statement := range load {
			if _, err := tx.Exec(statement); err != nil {
				tb.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			tb.Fatal(err)
		}
	}
}

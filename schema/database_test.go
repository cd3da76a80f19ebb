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

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestMain lets more tests run at once than there are processors: most wait for the server,
// or for a bound of the store to pass.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "12")
	os.Exit(kit.Main(m))
}

// patience is how long a test waits for what must happen.
const patience = testkit.Patience

// newStore opens a store on a database of the test.
func newDatabase(tb testing.TB, dsn string, changes ...func(*Config)) *Database {
	tb.Helper()
	s := prepare(tb, dsn, io.Discard, changes...)
	if err := s.Open(within(tb)); err != nil {
		tb.Fatalf("Open: %v", err)
	}
	return s
}

func prepare(tb testing.TB, dsn string, log io.Writer, changes ...func(*Config)) *Database {
	tb.Helper()
	cfg := Config{DSN: dsn, Log: slog.New(slog.NewTextHandler(log, nil))}
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

// inTable makes a database use a table of this name.
func inTable(table string) func(*Config) { return func(cfg *Config) { cfg.Table = table } }

// check demands that the database can be used.
func check(tb testing.TB, s *Database) {
	tb.Helper()
	if err := s.Check(within(tb)); err != nil {
		tb.Errorf("Check: %v", err)
	}
}

// insert makes the row of a tag.
func insert(tb testing.TB, s *Database, tag string, maxID, step int64) {
	tb.Helper()
	if err := s.Add(within(tb), allocator.Row{Name: tag, MaxID: maxID, Step: step}); err != nil {
		tb.Fatalf("Add(%s): %v", tag, err)
	}
}

// advance takes a range.
func advance(tb testing.TB, s *Database, tag string, n, from int64) allocator.Range {
	tb.Helper()
	r, _, err := s.Advance(within(tb), tag, n, 10, from)
	if err != nil {
		tb.Fatalf("Advance(%s, %d, %d): %v", tag, n, from, err)
	}
	return r
}

// peek returns what there is of a tag.
func peek(tb testing.TB, s *Database, tag string) allocator.Row {
	tb.Helper()
	r, err := s.Peek(within(tb), tag)
	if err != nil {
		tb.Fatalf("Peek(%s): %v", tag, err)
	}
	return r
}

// wantRow checks what there is of a tag.
func wantRow(tb testing.TB, s *Database, want allocator.Row) {
	tb.Helper()
	got := peek(tb, s, want.Name)
	if problem := got.Problem; !errors.Is(problem, want.Problem) {
		tb.Errorf("%s: problem %v, want %v", want.Name, problem, want.Problem)
	}
	if got.Problem, want.Problem = nil, nil; got != want {
		tb.Errorf("the database has %+v, want %+v", got, want)
	}
}

// rows is all that Rows brings, by name.
func rows(tb testing.TB, s *Database) map[string]allocator.Row {
	tb.Helper()
	all := make(map[string]allocator.Row)
	if err := s.Rows(within(tb), func(r allocator.Row) {
		if _, ok := all[r.Name]; ok {
			tb.Errorf("%q comes twice", r.Name)
		}
		all[r.Name] = r
	}); err != nil {
		tb.Fatalf("Rows: %v", err)
	}
	return all
}

// served is how many rows can be served, and what is wrong with the others.
func served(tb testing.TB, s *Database) (tags int, unfit []string) {
	tb.Helper()
	for _, r := range rows(tb, s) {
		switch {
		case r.Problem != nil:
			unfit = append(unfit, r.Problem.Error())
		case r.MaxID > 0:
			tags++
		}
	}
	return tags, unfit
}
